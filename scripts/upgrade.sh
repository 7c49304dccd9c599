#!/usr/bin/env bash
# Upgrades a home: the binary OLD fills it with running, hibernated, paused and persistent sandboxes, snapshots, volumes,
# secrets and tokens; the binary NEW opens it, and everything in it is used.
#
#   scripts/upgrade.sh OLD NEW
#
# Templates are those of SANDLING_TEMPLATES if that is set; they must have been built by OLD, or are built by it now.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/example_home.sh"
usage="usage: upgrade.sh OLD NEW"
old=$(realpath "${1:?$usage}")
new=$(realpath "${2:?$usage}")

# A short path: there are Unix sockets below it.
work=$(mktemp -d /tmp/upgrade.XXXXXX)
export SANDLING_HOME=$work/home
mkdir "$SANDLING_HOME"
server=
failed=0
clean_up() {
  local status=$?
  if [ -n "$server" ]; then
    "$sandling" rm $("$sandling" ls -q) >/dev/null || true
    [ -z "${team_token:-}" ] || SANDLING_TOKEN=$team_token "$sandling" rm "$team" >/dev/null || true
    stop || true
  fi
  [ "$status" = 0 ] || tail -n 50 "$work/server.log" >&2
  rm -rf "$work"
}
trap clean_up EXIT

# Compares what a command prints, and goes on after a difference, so that one run tells everything.
expect() { # WHAT EXPECTED COMMAND…
  local what=$1 expected=$2 got
  shift 2
  if got=$("$@" 2>&1) && [ "$got" = "$expected" ]; then
    echo "ok: $what"
  else
    echo "FAILED: $what: expected '$expected', got '$got'" >&2
    failed=1
  fi
}
succeeds() { # WHAT COMMAND…
  local what=$1 got
  shift
  if got=$("$@" 2>&1); then echo "ok: $what"; else
    echo "FAILED: $what: $got" >&2
    failed=1
  fi
}
file_of() { "$sandling" exec --no-stdin "$1" cat /root/file; }
count() { "$sandling" "$@" --json | jq 'if type == "array" then length else .items | length end'; }
state_of() { "$sandling" ls --json | jq -r --arg id "$1" '.[] | select(.id == $id) | .status'; }

"$old" template build base
serve "$old"
fill
. "$work/ids"
sandboxes=$(count ls) snapshots=$(count snapshot ls) volumes=$(count volume ls)
tokens=$(count token ls) audit=$(count audit)
stop

serve "$new"
echo "opened by $("$new" --version)"
for id in "$running" "$paused" "$hibernated" "$persistent" "$timeline" "$from_template"; do
  printf '%s %s\n' "$id" "$(state_of "$id")"
done
expect "all sandboxes are listed" "$sandboxes" count ls
expect "a running sandbox goes on" "on the disk" file_of "$running"
expect "its volume is mounted" "in the volume" "$sandling" exec --no-stdin "$running" cat /data/file
expect "its variables are set" blue "$sandling" exec --no-stdin "$running" sh -c 'echo $COLOUR'
expect "its secret is a placeholder" yes "$sandling" exec --no-stdin "$running" sh -c '[ -n "$API_KEY" ] && echo yes'
for child in $children; do
  expect "a fork goes on" "on the disk" file_of "$child"
  expect "the fork's own volume is mounted" "in the volume" "$sandling" exec --no-stdin "$child" cat /data/file
done
expect "a hibernated sandbox wakes" asleep file_of "$hibernated"
expect "a persistent sandbox wakes" kept file_of "$persistent"
expect "a sandbox of a template from a snapshot goes on" kept file_of "$from_template"
expect "a paused sandbox is paused" paused state_of "$paused"
succeeds "it resumes" "$sandling" resume "$paused"
expect "its template's variables are set" green "$sandling" exec --no-stdin "$paused" sh -c 'echo $COLOUR'
expect "its template's user and directory hold" "nobody /app" \
  "$sandling" exec --no-stdin "$paused" sh -c 'echo $(id -un) $(pwd)'
expect "a sandbox of E2B's clients is listed" steps sh -c \
  'curl --silent --noproxy "*" --header "X-API-Key: $SANDLING_TOKEN" "$SANDLING_API/v2/sandboxes" |
  jq -r --arg id "$0" ".[] | select(.sandboxID == \$id) | .alias // .templateID"' "$e2b"
succeeds "it runs commands" "$sandling" exec --no-stdin "$e2b" true

expect "the timeline is where it was" two file_of "$timeline"
succeeds "the timeline is listed" "$sandling" timeline "$timeline"
succeeds "the sandbox is rewound" "$sandling" rewind --to 2 "$timeline"
expect "it is where it was before" one file_of "$timeline"
succeeds "a new checkpoint is made" "$sandling" checkpoint create --name after "$timeline"

expect "all snapshots are listed" "$snapshots" count snapshot ls
restored=$("$sandling" create --from-snapshot "$snapshot" || true)
expect "a snapshot is restored" kept file_of "$restored"
again=$("$sandling" create --template golden || true)
expect "a template from a snapshot is used" kept file_of "$again"
imported=$("$sandling" snapshot import "$work/export" || true)
from_import=$("$sandling" create --from-snapshot "$imported" || true)
expect "an export is imported and restored" kept file_of "$from_import"
fresh=$("$sandling" create --template base || true)
expect "the template is used" fresh "$sandling" exec --no-stdin "$fresh" echo fresh
succeeds "a sandbox is forked" "$sandling" fork --volumes detach "$running"
succeeds "a sandbox is saved" "$sandling" snapshot create --volumes detach "$running"

expect "all volumes are listed" "$volumes" count volume ls
succeeds "a volume is cloned" "$sandling" volume clone data data-again
expect "secrets are listed" API_KEY sh -c '"$0" secret ls --json | jq -r ".[].name // .items[].name"' "$sandling"
expect "all tokens are listed" "$tokens" count token ls
succeeds "an old token works" env SANDLING_TOKEN="$read_token" "$sandling" ls
succeeds "a token of another workspace works" env SANDLING_TOKEN="$team_token" \
  "$sandling" exec --no-stdin "$team" true
expect "the audit log goes on" yes sh -c "[ $(count audit) -gt $audit ] && echo yes"
succeeds "the network default holds" sh -c '"$0" network --default --json | grep -q pypi' "$sandling"
expect "the quota holds" 20 sh -c '"$0" quota --workspace team --json | jq .limits.sandboxes' "$sandling"
succeeds "doctor finds nothing unreadable" sh -c '! "$0" doctor 2>&1 | grep -i unreadable' "$sandling"

[ "$failed" = 0 ] || { echo "upgrade: something was lost" >&2; exit 1; }
echo "upgrade: everything is there"
