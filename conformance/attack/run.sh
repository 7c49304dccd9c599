#!/usr/bin/env bash
# Runs `sandling doctor --attack` on this host, and checks that every defense held and that nothing is left behind.
#
#   conformance/attack/run.sh SANDLING
#
# SANDLING is the path of the binary. SANDLING_TEST_TEMPLATES names the directory with the templates.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING}")
[ -z "${SANDLING_TEST_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
export PYTHONDONTWRITEBYTECODE=1
run=$(mktemp -d "${TMPDIR:-/tmp}/a.XXXXXX")
trap 'rm -rf "$run"' EXIT
export TMPDIR=$run/t
mkdir "$TMPDIR"

fail() {
  echo "attack: $*" >&2
  exit 1
}

# The command's directories and the processes that use them.
nothing_is_left() {
  local left
  left=$(ls -A "$TMPDIR")
  [ -z "$left" ] || fail "files were left behind: $left"
  # The kernel takes a moment to end what was killed.
  for _ in $(seq 50); do
    # pgrep does not find itself.
    left=$(pgrep --full --list-full "$TMPDIR" || true)
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  fail "processes were left behind: $left"
}

status=0
"$sandling" doctor --attack --json --out "$run/report.md" >"$run/report.json" || status=$?
[ "$status" -le 1 ] || fail "the command ended with $status"
python3 "$here/check.py" held "$run/report.json"
python3 - "$run/report.json" "$run/report.md" "$status" <<'END'
import json, sys
report, text, status = json.load(open(sys.argv[1])), open(sys.argv[2]).read(), int(sys.argv[3])
broken = [entry["id"] for entry in report["entries"] if entry["verdict"] == "did_not_hold"]
assert (status == 0) == (not broken) == report["held"], (status, broken, report["held"])
missing = [entry["id"] for entry in report["entries"] if f"\n## {entry['id']}\n" not in text]
assert not missing, f"the report misses {missing}"
assert report["duration_seconds"] < 600, report["duration_seconds"]
END
nothing_is_left

# A terminal sends Ctrl-C to the command while a machine runs.
"$sandling" doctor --attack --only machine --only neighbors --json >"$run/interrupted.json" 2>"$run/log" &
command=$!
for _ in $(seq 600); do
  ! compgen -G "$TMPDIR/attack.*/home/sandboxes/*/machine.json" >/dev/null || break
  kill -0 "$command" 2>/dev/null || fail "the command ended early: $(cat "$run/log")"
  sleep 0.1
done
kill -INT "$command"
status=0
wait "$command" || status=$?
[ "$status" = 130 ] || fail "the interrupted command ended with $status"
grep -q '"the command was interrupted"' "$run/interrupted.json" || fail "the report does not say that it was interrupted"
nothing_is_left
echo "attack: every defense held"
