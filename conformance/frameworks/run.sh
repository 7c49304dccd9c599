#!/usr/bin/env bash
# Tests agent frameworks from PyPI and npm, unmodified, against a server with real virtual machines. They use a scripted
# model, and E2B's clients or Sandling's.
#
#   conformance/frameworks/run.sh SANDLING [--examples] [FRAMEWORK...]
#
# SANDLING is the path of the binary. A framework is a directory beside this file, except `support`; by default all of
# them run. Each runs its example in docs/frameworks.md, and its own suite for sandboxes if there is one. With --examples,
# only the examples run.
# CONFORMANCE_NEWEST=1 uses the newest packages instead of the pinned ones. `conformance/server.sh` says which templates
# are used. Exits with 0 only if all passed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [--examples] [FRAMEWORK...]}")
shift
arguments=("$@")
tests=()
if [ "${1:-}" = --examples ]; then
  shift
  tests=(test_example.py)
fi
suites=("$@")
if [ ${#suites[@]} -eq 0 ]; then
  mapfile -t suites < <(cd "$here" && find . -mindepth 2 -maxdepth 2 ! -path './support/*' \
    \( -name requirements.txt -o -name package.json \) -printf '%h\n' | sed 's|^\./||' | sort)
fi

# Machines outlive the process that started them. A subreaper finds those that were forgotten.
if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/../subreaper.py" "$0" "$sandling" "${arguments[@]}"
fi

installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance/frameworks
newest=${CONFORMANCE_NEWEST:+newest-}
. "$here/../server.sh"
. "$here/../../scripts/python.sh"

install_framework() { # NAME
  local to=$installed/$newest$1 wanted
  if [ -f "$here/$1/package.json" ]; then
    mkdir -p "$to"
    # The only values that begin with a digit are versions.
    sed "${newest:+s/: \"[0-9][^\"]*\"/: \"latest\"/}" "$here/$1/package.json" >"$to/package.json"
    (cd "$to" && npm install --silent --no-audit --no-fund)
  fi
  mapfile -t wanted < <(find "$here/support" "$here/$1" -name requirements.txt -exec sed "${newest:+s/==.*//}" {} +)
  python_env "$to/venv" ${newest:+--upgrade} "${wanted[@]}"
}

run_framework() ( # NAME
  # The scripted model is the one of the SDK's tests.
  local sdk=$here/../../sdk/python
  export PYTHONPATH=$here/support:$sdk/tests/frameworks:$sdk/src PYTHONDONTWRITEBYTECODE=1
  export FRAMEWORK_PACKAGES=$installed/$newest$1
  cd "$here/$1"
  timeout 900 "$FRAMEWORK_PACKAGES/venv/bin/python" -m pytest --quiet --config-file ../support/pytest.ini --rootdir . "${tests[@]}"
)

trap 'clean_up "$installed/server.log"' EXIT

mkdir -p "$installed"
for framework in "${suites[@]}"; do
  install_framework "$framework"
done
start_server
# Some clients need a key of the form `e2b_` plus hexadecimal digits.
E2B_API_KEY=e2b_$(printf %s "$SANDLING_TOKEN" | od -An -v -tx1 | tr -d ' \n')
export E2B_API_KEY E2B_API_URL=$SANDLING_API E2B_SANDBOX_URL=$SANDLING_API
# One after another: importing a framework alone occupies a core for seconds.
for framework in "${suites[@]}"; do
  echo "conformance: $framework against $SANDLING_API"
  run_framework "$framework" || fail "$framework failed"
done
nothing_is_left
stop_server
exit "$failed"
