#!/usr/bin/env bash
# Tests PandaStack's public clients, unmodified, against a server with real virtual machines.
#
#   conformance/pandastack/run.sh SANDLING [python] [typescript]
#
# SANDLING is the path of the binary; by default both suites run. `conformance/server.sh` says which templates are used.
# PYTEST_ADDOPTS selects tests of the Python suite. With CONFORMANCE_FLEET=3, the Python suite leaves out the tests in
# `conformance/fleet/gaps/pandastack.txt`. Exits with 0 only if all passed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [python] [typescript]}")
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(python typescript)

# Machines outlive the process that started them. A subreaper finds those that were forgotten.
if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/../subreaper.py" "$0" "$sandling" "${suites[@]}"
fi

installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance
. "$here/../server.sh"
. "$here/../../scripts/python.sh"

install_python() { python_env "$installed/python" --requirement "$here/python/requirements.txt"; }

install_typescript() {
  mkdir -p "$installed/typescript"
  # Node finds packages relative to the test file, so the tests are copied next to the packages.
  rm -rf "$installed/typescript/"*.mjs "$installed/typescript/support"
  cp -r "$here/typescript/." "$installed/typescript/"
  (cd "$installed/typescript" && npm install --silent --no-audit --no-fund)
}

workspaces() {
  (cd "$here/python" && PYTHONDONTWRITEBYTECODE=1 "$installed/python/bin/python" -m support.workspaces "$@")
}

run_python() {
  local gaps=()
  if [ -n "${CONFORMANCE_FLEET:-}" ]; then
    mapfile -t gaps < <(sed -n 's/^test/--deselect=test/p' "$here/../fleet/gaps/pandastack.txt")
  fi
  (cd "$here/python" && PYTHONDONTWRITEBYTECODE=1 timeout 1800 "$installed/python/bin/python" -m pytest --quiet "${gaps[@]}")
}

run_typescript() {
  (cd "$installed/typescript" && timeout 1200 node --test --test-reporter=spec)
}

trap 'clean_up "$installed/server.log"' EXIT

mkdir -p "$installed"
install_python
[[ " ${suites[*]} " != *" typescript "* ]] || install_typescript
start_server
# The form of the token selects the dialect.
export PANDASTACK_API=$SANDLING_API PANDASTACK_API_KEY=pds_${SANDLING_TOKEN#sdl_}
# The tests create many sandboxes per minute.
workspaces unlimited default
SANDLING_TOKEN_OTHER=$(workspaces token other)
export SANDLING_TOKEN_OTHER
run_suites
left=$(workspaces left "$SANDLING_TOKEN" "$SANDLING_TOKEN_OTHER")
[ -z "$left" ] || fail "sandboxes were left behind:" $left
stop_server
exit "$failed"
