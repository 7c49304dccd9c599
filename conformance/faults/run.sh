#!/usr/bin/env bash
# Damages files, fills the disk, restarts and kills the server, and checks that everything acknowledged still holds.
#
#   conformance/faults/run.sh SANDLING [KILLS]
#
# SANDLING is the path of the binary, KILLS (5) how often it is killed during its work. As root, file systems are
# filled in a private mount namespace; otherwise those tests are skipped.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
SANDLING=$(realpath "${1:?usage: run.sh SANDLING [KILLS]}")
kills=${2:-5}
installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance
own=${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates
SANDLING_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${SANDLING_TEMPLATES:-$own}}
export SANDLING SANDLING_TEMPLATES PYTHONDONTWRITEBYTECODE=1

if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/../subreaper.py" "$0" "$SANDLING" "$kills"
fi

mkdir -p "$installed"
. "$here/../../scripts/python.sh"
python_env "$installed/python" --requirement "$here/../pandastack/python/requirements.txt"

cd "$here"
private=()
[ "$(id -u)" != 0 ] || private=(unshare --mount)
status=0
timeout 1800 "${private[@]}" "$installed/python/bin/python" -m pytest --quiet || status=$?
"$installed/python/bin/python" kills.py "$kills" || status=$?
exit "$status"
