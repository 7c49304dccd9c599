#!/usr/bin/env bash
# Installs what the tests need and runs all of them, with real virtual machines. CI runs this script.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/s3_server.sh
. scripts/templates.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/retried"

step() { printf '\n==> %s\n' "$*"; }

# Runs one step of a lane. Its output appears when it has ended, so that the output of two lanes does not mix. The CPU time
# does not include processes that outlive their parents, such as virtual machines.
part() { # NAME COMMAND…
  local output status=0 took TIMEFORMAT='took %0R s, %0U + %0S s of CPU time'
  output=$(mktemp --tmpdir="$scratch")
  echo "    $1 …"
  took=$({ time "${@:2}" >"$output" 2>&1; } 2>&1) || status=$?
  [ "$status" = 0 ] || echo "failed: $1" >>"$output"
  flock "$scratch" bash -c 'printf "\n==> %s (%s, done after %s s)\n" "$1" "$3" "$4" && cat "$2"' - "$1" "$output" "$took" "$SECONDS"
  return "$status"
}

# Runs lanes of steps side by side, because most tests wait. The first failure ends the other lanes. Each lane is a
# process group: a shell's other background processes ignore interrupts, and some tests send them.
lanes() { # FUNCTION…
  local pids=() status=0 lane ended
  set -m
  for lane in "$@"; do
    "$lane" </dev/null &
    pids+=($!)
  done
  set +m
  trap 'kill -- "${pids[@]/#/-}" 2>/dev/null; exit 130' INT TERM
  while [ ${#pids[@]} -gt 0 ] && [ "$status" = 0 ]; do
    wait -n -p ended "${pids[@]}" || status=$?
    mapfile -t pids < <(printf '%s\n' "${pids[@]}" | grep -vx "$ended")
  done
  [ ${#pids[@]} = 0 ] || kill -- "${pids[@]/#/-}" 2>/dev/null || true
  trap - INT TERM
  return "$status"
}

# Clippy's driver is the compiler with more lints, so one build compiles and lints; `cargo clippy` would read the workspace
# and its dependencies once more. Cargo builds anew what another compiler has built, so all commands use this function.
linting_cargo() {
  RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ cargo "$@"
}

# Runs tests with virtual machines. If all that failed are in scripts/retries.txt, they are noted for `retry_vm_tests`.
vm_tests() { # ARGUMENT-OF-THE-TEST-PROGRAMS…
  local log failed name
  log=$(mktemp --tmpdir="$scratch")
  linting_cargo test --workspace --quiet --no-fail-fast --test vm -- "$@" 2>&1 | tee "$log" && return
  mapfile -t failed < <(sed -n 's/^---- \(.*\) stdout ----$/\1/p' "$log")
  [ ${#failed[@]} -gt 0 ] || return 1
  for name in "${failed[@]}"; do
    grep -q "^$name  " scripts/retries.txt || return 1
  done
  printf '%s\n' "${failed[@]}" >>"$scratch/retried"
}

# Runs the noted tests once more, one at a time, when nothing else runs.
retry_vm_tests() {
  local failed
  mapfile -t failed <"$scratch/retried"
  [ ${#failed[@]} -gt 0 ] || return 0
  step "retrying ${failed[*]}"
  linting_cargo test --workspace --quiet --test vm -- --test-threads 1 --exact "${failed[@]}"
}

# A retry that should have been fixed by now is a failure.
check_retries() {
  local overdue
  overdue=$(awk -v today="$(date +%F)" '!/^#/ && $2 < today { print $1 }' scripts/retries.txt)
  [ -z "$overdue" ] || { echo "overdue in scripts/retries.txt: $overdue" >&2 && return 1; }
}

# Compiled Python files beside the guest's interpreters would make cargo rebuild everything that contains them.
export PYTHONDONTWRITEBYTECODE=1

step "packages"
need_cargo
install_packages "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
# A newer Node than Debian's brings its own npm.
command -v node >/dev/null || install_packages nodejs
command -v npm >/dev/null || install_packages npm
install_s3_server

step "format and structure"
check_retries
cargo fmt --all --check
# These files belong to no crate, so cargo does not know them.
rustfmt --edition 2024 --check crates/vmm/preload/*.rs
scripts/cycles.py
scripts/threat_model.py

step "build and lints"
# The binary embeds the dashboard's files.
scripts/dashboard.sh
# Always build the whole workspace with its tests: a different choice of packages is a different choice of features, and
# rebuilds every dependency.
linting_cargo build --workspace --all-targets --quiet
sandling=$PWD/target/debug/sandling

machines() {
  part "templates in $SANDLING_TEST_TEMPLATES" build_templates "$sandling" base code-interpreter agent &&
    part "tests in virtual machines" vm_tests --test-threads "${SANDLING_TEST_THREADS:-2}" --skip nested:: &&
    part "nested KVM" vm_tests nested::
}
code() {
  part "dependencies" scripts/deny.sh &&
    part "the Kubernetes manifest" scripts/kubernetes.sh &&
    part "interpreters" python3 -m unittest discover --quiet --start-directory crates/guest/interpreters/tests &&
    part "R and Java" python3 -m unittest discover --quiet --start-directory crates/api/src/e2b/interpreter/bridge &&
    part "unit and integration tests" linting_cargo test --workspace --quiet --lib --bins --test '[!v]*' &&
    part "fuzz targets" env SANDLING_FUZZ_OPT_LEVEL=0 scripts/fuzz.sh 0
}
step "code and virtual machines"
# The nested test occupies a core for minutes and fails on a busy host. It runs beside the unit tests, which mostly wait.
lanes machines code
retry_vm_tests

public_clients() {
  part "PandaStack's clients" conformance/pandastack/run.sh "$sandling" &&
    part "E2B's clients" conformance/e2b/run.sh "$sandling" &&
    part "agent frameworks" conformance/frameworks/run.sh "$sandling" --examples &&
    part "the API and its document" env SANDLING_SCHEMATHESIS_SEED=1 conformance/schemathesis.sh "$sandling" 30 &&
    part "sandboxes from images" conformance/oci/sandboxes.sh "$sandling" &&
    part "attacks on the listener" conformance/listener/run.sh "$sandling" &&
    part "faults" conformance/faults/run.sh "$sandling" "${SANDLING_KILLS:-5}" &&
    part "faults of a fleet" conformance/fleet/run.sh "$sandling" "${SANDLING_FLEET_FAULTS:-5}" &&
    part "MCP clients" conformance/mcp/run.sh "$sandling"
}
own_clients() {
  part "SDKs" env SANDLING_TEMPLATES="$SANDLING_TEST_TEMPLATES" sdk/test.sh "$sandling" &&
    part "the SDKs' shared cases, and the documentation" sdk/conformance/run.sh "$sandling" &&
    part "the agent loop" conformance/agent/run.sh "$sandling" &&
    part "the dashboard" env SANDLING_TEMPLATES="$SANDLING_TEST_TEMPLATES" dashboard/test.sh "$sandling" &&
    part "attacks on this host" conformance/attack/run.sh "$sandling"
}
fuzzing() {
  part "fuzzing" env SANDLING_FUZZ_SEED=1 SANDLING_FUZZ_OPT_LEVEL=0 nice -n 10 scripts/fuzz.sh "${SANDLING_FUZZ_SECONDS:-15}"
}
step "clients and fuzzing"
# The clients mostly wait for virtual machines. Fuzzing takes the CPU time that is left.
lanes public_clients own_clients fuzzing

step "load"
target/debug/sandling-load --sandling "$sandling" --templates "$SANDLING_TEST_TEMPLATES" --out "$scratch" \
  --seconds "${SANDLING_LOAD_SECONDS:-15}" --rounds 50

step "leftovers"
scripts/leftovers.sh

if [ -s "$scratch/retried" ]; then
  printf '\nretried (scripts/retries.txt says why):\n'
  cat "$scratch/retried"
fi
printf '\nall passed in %s minutes\n' "$((SECONDS / 60))"
