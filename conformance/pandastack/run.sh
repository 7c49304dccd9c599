#!/usr/bin/env bash
# Drives PandaStack's public clients, unmodified, against a server of its own with real virtual machines.
#
#   conformance/pandastack/run.sh SANDLING [python] [typescript]
#
# SANDLING is the path of the binary; both suites run unless one is named. SANDLING_TEST_TEMPLATES names the directory
# with the templates `base` and `code-interpreter`; without it, those of the user's own home are used. PYTEST_ADDOPTS
# narrows the Python suite down. Ends with 0 only if all passed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [python] [typescript]}")
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(python typescript)

# Machines outlive whoever started them; only a subreaper sees those that were forgotten.
if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/subreaper.py" "$0" "$sandling" "${suites[@]}"
fi

installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance
# A short path: there are Unix sockets below it.
run=$(mktemp -d "${TMPDIR:-/tmp}/conformance.XXXXXX")
server=

install_python() {
  local venv=$installed/python
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/python/requirements.txt"
}

install_typescript() {
  mkdir -p "$installed/typescript"
  # Packages are found from where a test lies, so the tests go to the packages.
  rm -rf "$installed/typescript/"*.mjs "$installed/typescript/support"
  cp -r "$here/typescript/." "$installed/typescript/"
  (cd "$installed/typescript" && npm install --silent --no-audit --no-fund)
}

start_server() {
  export SANDLING_HOME=$run/home
  [ -z "${SANDLING_TEST_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
  [ -n "${SANDLING_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates
  SANDLING_TOKEN=conformance-$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
  export SANDLING_TOKEN
  "$sandling" serve --listen 127.0.0.1:0 >"$run/server.log" 2>&1 &
  server=$!
  local attempt
  for attempt in $(seq 300); do
    SANDLING_API=$(grep -om1 'http://127\.0\.0\.1:[0-9]*' "$run/server.log" || true)
    [ -z "$SANDLING_API" ] || break
    kill -0 "$server" 2>/dev/null || { fail "the server ended before it said where it listens"; exit 1; }
    sleep 0.1
  done
  [ -n "$SANDLING_API" ] || { fail "the server did not say where it listens within 30 s"; exit 1; }
  export SANDLING_API PANDASTACK_API=$SANDLING_API PANDASTACK_API_KEY=$SANDLING_TOKEN NO_PROXY=127.0.0.1,localhost
}

workspaces() {
  (cd "$here/python" && PYTHONDONTWRITEBYTECODE=1 "$installed/python/bin/python" -m support.workspaces "$@")
}

run_python() {
  (cd "$here/python" && PYTHONDONTWRITEBYTECODE=1 timeout 1800 "$installed/python/bin/python" -m pytest --quiet)
}

run_typescript() {
  (cd "$installed/typescript" && timeout 1200 node --test --test-reporter=spec)
}

# All suites at once: much of what each does is waiting. One's words are shown when it has ended.
run_suites() {
  local suite pids=()
  for suite in "${suites[@]}"; do
    echo "conformance: $suite against $SANDLING_API"
    "run_$suite" >"$run/$suite.log" 2>&1 &
    pids+=($!)
  done
  for suite in "${suites[@]}"; do
    wait "${pids[0]}" || fail "the $suite suite failed"
    pids=("${pids[@]:1}")
    cat "$run/$suite.log"
  done
}

# Notes a failure and goes on, so that one run tells everything.
fail() {
  echo "conformance: $*" >&2
  failed=1
}

# Asks the server to end and expects a clean drain.
stop_server() {
  local stopping=$server status=0 attempt
  server=
  kill -TERM "$stopping"
  for attempt in $(seq 600); do
    kill -0 "$stopping" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$stopping" 2>/dev/null || true
  wait "$stopping" || status=$?
  [ "$status" = 0 ] || fail "the server ended with $status after SIGTERM"
}

cleanup() {
  local status=$?
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  if [ "$status" != 0 ] && [ -f "$run/server.log" ]; then
    mkdir -p "$installed"
    cp "$run/server.log" "$installed/server.log"
    echo "conformance: the server's log is in $(realpath "$installed/server.log")" >&2
  fi
  rm -rf "$run"
}
trap cleanup EXIT

failed=0
mkdir -p "$installed"
install_python
[[ " ${suites[*]} " != *" typescript "* ]] || install_typescript
start_server
# Many sandboxes a minute are the point here, not a mistake.
workspaces unlimited default
SANDLING_TOKEN_OTHER=$(workspaces token other)
export SANDLING_TOKEN_OTHER
run_suites
left=$(workspaces left "$SANDLING_TOKEN" "$SANDLING_TOKEN_OTHER")
[ -z "$left" ] || fail "sandboxes were left behind:" $left
stop_server
directories=$(find "$SANDLING_HOME/sandboxes" -mindepth 1 -maxdepth 1 2>/dev/null || true)
[ -z "$directories" ] || fail "sandbox directories were left behind:" $directories
exit "$failed"
