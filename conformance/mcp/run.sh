#!/usr/bin/env bash
# Tests `sandling mcp` with the official MCP clients from PyPI and npm, against a server with real virtual machines.
#
#   conformance/mcp/run.sh SANDLING [python] [node]
#
# SANDLING is the path of the binary. SANDLING_TEST_TEMPLATES names the directory with the template `base`. Exits with 0
# only if no case failed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [python] [node]}")
shift
clients=("$@")
[ ${#clients[@]} -gt 0 ] || clients=(python node)
installed=${CARGO_TARGET_DIR:-$here/../../target}/mcp-conformance
. "$here/../server.sh"
. "$here/../../scripts/python.sh"
http=
# Records the result for clean_up.
end_http() {
  local status=$?
  [ -z "$http" ] || kill -TERM "$http" 2>/dev/null || true
  return "$status"
}
trap 'if end_http; then clean_up "$log"; else clean_up "$log"; fi' EXIT
log=$installed/server.log

install_python() { python_env "$installed/python" --upgrade 'mcp>=2.3,<3'; }

install_node() {
  mkdir -p "$installed/node"
  cp "$here/package.json" "$here"/*.mjs "$installed/node/"
  (cd "$installed/node" && npm install --silent --no-audit --no-fund)
}

run_python() { "$installed/python/bin/python" "$here/client.py" "$sandling" "$url"; }
run_node() { node "$installed/node/client.mjs" "$sandling" "$url"; }

# Over HTTP, one server has many clients.
start_http() {
  "$sandling" mcp --http 127.0.0.1:0 --template base --timeout 60s >"$run/mcp.log" 2>&1 &
  http=$!
  local attempt
  for attempt in $(seq 300); do
    url=$(grep -om1 'http://[^ ]*/mcp' "$run/mcp.log" || true)
    [ -z "$url" ] || return 0
    kill -0 "$http" 2>/dev/null || break
    sleep 0.1
  done
  cat "$run/mcp.log" >&2
  fail "sandling mcp --http did not say where it listens"
  exit 1
}

for client in "${clients[@]}"; do "install_$client"; done
start_server
start_http
for client in "${clients[@]}"; do
  echo "mcp: $client"
  "run_$client" || fail "the $client client failed"
done
kill -TERM "$http"
wait "$http" || fail "sandling mcp --http did not end cleanly"
http=
nothing_is_left
stop_server
exit "$failed"
