# Starts a server with real virtual machines for a test suite. Sourced by the suites' scripts.
#
# Expects `sandling`, the path of the binary. SANDLING_TEST_TEMPLATES names the directory with the templates `base` and
# `code-interpreter`; by default the templates of the user's home are used. CONFORMANCE_FLEET=3 starts three servers as a
# fleet instead, and each connection reaches another one.

# A short path, because it contains Unix sockets.
run=$(mktemp -d "${TMPDIR:-/tmp}/conformance.XXXXXX")
server=
failed=0

# Records a failure and continues, so that one run reports everything.
fail() {
  echo "conformance: $*" >&2
  failed=1
}

# Starts the server, on a free port or where `listen` says. Arguments are options of `serve`.
start_server() {
  export SANDLING_HOME=$run/home
  [ -z "${SANDLING_TEST_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
  [ -n "${SANDLING_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates
  SANDLING_TOKEN=conformance-$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
  export SANDLING_TOKEN
  if [ -n "${CONFORMANCE_FLEET:-}" ]; then
    SANDLING=$sandling python3 "$(dirname "${BASH_SOURCE[0]}")/fleet/serve.py" "$CONFORMANCE_FLEET" "$@" >"$run/server.log" 2>&1 &
  else
    "$sandling" serve --listen "${listen:-127.0.0.1:0}" "$@" >"$run/server.log" 2>&1 &
  fi
  server=$!
  local attempt
  for attempt in $(seq 900); do
    SANDLING_API=$(grep -om1 'http://127\.0\.0\.1:[0-9]*' "$run/server.log" || true)
    [ -z "$SANDLING_API" ] || break
    kill -0 "$server" 2>/dev/null || { fail "the server ended before it said where it listens"; exit 1; }
    sleep 0.1
  done
  [ -n "$SANDLING_API" ] || { fail "the server did not say where it listens within 90 s"; exit 1; }
  export SANDLING_API NO_PROXY=127.0.0.1,localhost
}

# Runs all `suites` in parallel, each with its `run_SUITE`, because they mostly wait. The output of a suite appears when
# it has ended.
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

# Checks that every sandbox of the default workspace has ended.
nothing_is_left() {
  local left
  left=$(curl --silent --noproxy '*' --header "Authorization: Bearer $SANDLING_TOKEN" "$SANDLING_API/v1/sandboxes")
  [ "$left" = "[]" ] || fail "sandboxes were left behind: $left"
}

# Stops the server, and checks that it exits cleanly and leaves nothing behind.
stop_server() {
  local stopping=$server status=0 attempt directories
  server=
  kill -TERM "$stopping"
  for attempt in $(seq 600); do
    kill -0 "$stopping" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$stopping" 2>/dev/null || true
  wait "$stopping" || status=$?
  [ "$status" = 0 ] || fail "the server ended with $status after SIGTERM"
  directories=$(find "$SANDLING_HOME/sandboxes" -mindepth 1 -maxdepth 1 2>/dev/null || true)
  [ -z "$directories" ] || fail "sandbox directories were left behind:" $directories
}

# For a trap on EXIT: `clean_up LOG` copies the server's log to LOG if anything failed.
clean_up() {
  local status=$?
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  if [ "$status" != 0 ] && [ -f "$run/server.log" ]; then
    mkdir -p "$(dirname "$1")"
    cp "$run/server.log" "$1"
    echo "conformance: the server's log is in $(realpath "$1")" >&2
  fi
  rm -rf "$run"
}
