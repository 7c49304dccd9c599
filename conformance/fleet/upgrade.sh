#!/usr/bin/env bash
# Upgrades a fleet of three real servers from one version to another while clients use it: conformance/fleet/upgrade.py.
#
#   conformance/fleet/upgrade.sh OLD NEW [SEED]
#
# OLD and NEW are paths of binaries. OLD can also be `git:COMMIT`, such as `git:main~20`: then that commit is built. Needs what
# run.sh needs, and is skipped without root, too.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
usage="usage: upgrade.sh OLD NEW [SEED]"
old=${1:?$usage}
new=$(realpath "${2:?$usage}")
kept=${CARGO_TARGET_DIR:-$here/../../target}/conformance/fleet
own=${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates
SANDLING_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${SANDLING_TEMPLATES:-$own}}
export SANDLING_TEMPLATES FLEET_KEPT=$kept PYTHONDONTWRITEBYTECODE=1

if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: conformance/fleet/upgrade.sh makes network namespaces, so it needs root" >&2
  exit
fi
if [ "${old#git:}" != "$old" ]; then
  old=$("$here/../../scripts/build_commit.sh" "${old#git:}")
fi
old=$(realpath "$old")
cd "$here"
python3 ../subreaper.py unshare --mount python3 upgrade.py "$old" "$new" ${3:+"$3"}
