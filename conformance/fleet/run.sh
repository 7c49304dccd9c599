#!/usr/bin/env bash
# Damages a fleet of three real servers at random while clients use it, and checks that everything promised holds. Before
# that, takes its etcd back to older data, to none, and to another node.
#
#   conformance/fleet/run.sh SANDLING [FAULTS] [SEED]
#
# SANDLING is the path of the binary, FAULTS (5) how many faults there are. From 50 on, some last 30 s. Each node has a
# network namespace of its own, so nothing is tested without root. Needs the packages etcd-server, nftables and faketime.
# SEED repeats the faults of a run.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
SANDLING=$(realpath "${1:?usage: run.sh SANDLING [FAULTS] [SEED]}")
faults=${2:-5}
kept=${CARGO_TARGET_DIR:-$here/../../target}/conformance/fleet
own=${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates
SANDLING_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${SANDLING_TEMPLATES:-$own}}
export SANDLING SANDLING_TEMPLATES FLEET_KEPT=$kept PYTHONDONTWRITEBYTECODE=1

if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: conformance/fleet/run.sh makes network namespaces, so it needs root" >&2
  exit
fi
cd "$here"
status=0
for test in lost_data.py "random_faults.py $faults ${3:-}"; do
  # shellcheck disable=SC2086
  python3 ../subreaper.py unshare --mount python3 $test || status=$?
done
exit "$status"
