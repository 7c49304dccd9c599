#!/usr/bin/env bash
# Runs schemathesis with valid and invalid requests against a server with real virtual machines. No answer may be a 5xx,
# or one that the OpenAPI document does not describe.
#
#   conformance/schemathesis.sh SANDLING [SECONDS]
#
# SANDLING is the path of the binary, SECONDS (120) how long it runs. `conformance/server.sh` says which
# templates are used. SANDLING_SCHEMATHESIS_SEED repeats the requests of an earlier run, which has printed its seed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: schemathesis.sh SANDLING [SECONDS]}")
seconds=${2:-120}
installed=${CARGO_TARGET_DIR:-$here/../target}/conformance

if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/subreaper.py" "$0" "$sandling" "$seconds"
fi
. "$here/server.sh"

api() { # METHOD PATH [JSON]
  curl --silent --show-error --fail-with-body --request "$1" "$SANDLING_API$2" \
    --header "Authorization: Bearer $SANDLING_TOKEN" ${3:+--header "Content-Type: application/json" --data "$3"}
}

field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Existing objects, so that not every answer is "not found". Objects that can be deleted exist twice.
make_things() {
  api PATCH /v1/workspaces/default '{"record_runs": true}' >/dev/null
  SANDBOX=$(api POST /v1/sandboxes '{"template": "base"}' | field id)
  VICTIM=$(api POST /v1/sandboxes '{"template": "base"}' | field id)
  DOOMED=$(api POST /v1/sandboxes '{"template": "base"}' | field id)
  for sandbox in "$SANDBOX" "$VICTIM"; do
    api POST "/v1/sandboxes/$sandbox/exec" '{"cmd": "echo done", "id": "known"}' >/dev/null
    api POST "/v1/sandboxes/$sandbox/repl/sessions" '{"id": "known"}' >/dev/null
    api POST "/v1/sandboxes/$sandbox/checkpoints" '{"name": "known"}' >/dev/null
  done
  SNAPSHOT=$(api POST "/v1/sandboxes/$SANDBOX/snapshots" | field id)
  DOOMED_SNAPSHOT=$(api POST "/v1/sandboxes/$SANDBOX/snapshots" | field id)
  api POST "/v1/snapshots/$SNAPSHOT/template" '{"name": "doomed"}' >/dev/null
  PREVIEW=$(api POST "/v1/sandboxes/$SANDBOX/preview-token" '{"port": 80}' | field id)
  BUILD=$(api POST /v1/templates/build '{"name": "built", "dockerfile": "FROM base\nRUN true\n"}' | field id)
  RECORDING=$(api GET /v1/audit |
    python3 -c 'import json, sys; print(*(e["number"] for e in json.load(sys.stdin)["items"] if e["action"] == "run.recorded"))')
  RECORDING=${RECORDING%% *}
  for name in known doomed; do
    api POST /v1/volumes "{\"name\": \"$name\", \"size_mb\": 16}" >/dev/null
    api PUT "/v1/secrets/$name" '{"value": "secret", "hosts": ["example.com"]}' >/dev/null
  done
  for workspace in fuzzed doomed; do
    api POST /v1/workspaces "{\"name\": \"$workspace\"}" >/dev/null
  done
  PREFIX=$(api POST /v1/me/tokens '{"label": "doomed"}' | field prefix)
  FUZZED_PREFIX=$(api POST /v1/workspaces/fuzzed/tokens '{"label": "doomed"}' | field prefix)
  export SANDBOX VICTIM DOOMED SNAPSHOT DOOMED_SNAPSHOT PREVIEW BUILD RECORDING PREFIX FUZZED_PREFIX
  # As many as a small host can run. `schemathesis_hooks.py` gives new sandboxes a short TTL.
  api PUT /v1/workspaces/default/quota '{"sandboxes": 8}' >/dev/null
}

trap 'clean_up "$installed/server.log"' EXIT
. "$here/../scripts/python.sh"
python_env "$installed/schemathesis" schemathesis==4.32.5
start_server
make_things
(cd "$run" && PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=schemathesis_hooks PYTHONPATH=$here \
  "$installed/schemathesis/bin/schemathesis" --config-file "$here/schemathesis.toml" \
  run "$SANDLING_API/openapi.json" --phases examples,coverage,fuzzing --max-time "$seconds" \
  ${SANDLING_SCHEMATHESIS_SEED:+--seed "$SANDLING_SCHEMATHESIS_SEED"}) ||
  fail "schemathesis found something"
api POST "/v1/sandboxes/$SANDBOX/exec" '{"args": ["/bin/true"]}' >/dev/null ||
  fail "the sandbox did not bear it:" "$(api GET "/v1/sandboxes/$SANDBOX/events")"
ids='import json, sys; print(*(sandbox["id"] for sandbox in json.load(sys.stdin)))'
made=$(grep -c 'sandbox.create' <(api GET '/v1/audit?limit=10000' | tr '{' '\n' | grep '"result":"ok"') || true)
echo "creates that succeeded: $made"
[ "${made:-0}" -gt 2 ] || fail "no create succeeded but our own"
for left in $(api GET /v1/sandboxes | python3 -c "$ids"); do
  api DELETE "/v1/sandboxes/$left" || true
done
stop_server
exit "$failed"
