#!/usr/bin/env bash
# Installs what the tests need and runs all of them, with real virtual machines. This is what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/templates.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/again"

step() { printf '\n==> %s\n' "$*"; }

# Emulated machines on a host that others use, too: what fails there is done once more, and then counts. What needed it
# is said at the end.
twice() {
  "$@" && return
  echo "$*" >>"$scratch/again"
  step "once more: $*"
  "$@"
}

# One step of a lane, whose words are shown when it has ended, so that those of two lanes do not mix.
part() { # NAME COMMAND…
  local said status=0
  said=$(mktemp --tmpdir="$scratch")
  echo "    $1 …"
  "${@:2}" >"$said" 2>&1 || status=$?
  [ "$status" = 0 ] || echo "failed: $1" >>"$said"
  flock "$scratch" bash -c 'printf "\n==> %s\n" "$1" && cat "$2"' - "$1" "$said"
  return "$status"
}

# Much of what the tests do is waiting: two rows of them go on side by side. Each is a process group, because a shell's
# other background processes have interrupts ignored, and there are tests that send some.
lanes() { # FUNCTION…
  local pids=() status=0 lane pid
  set -m
  for lane in "$@"; do
    "$lane" </dev/null &
    pids+=($!)
  done
  set +m
  trap 'kill -- "${pids[@]/#/-}" 2>/dev/null; exit 130' INT TERM
  for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
  done
  trap - INT TERM
  return "$status"
}

# Those that fail are run once more, alone.
vm_tests() {
  local log=$scratch/vm failed
  cargo test --workspace --quiet --test vm -- --test-threads "${SANDLING_TEST_THREADS:-3}" 2>&1 | tee "$log" && return
  mapfile -t failed < <(sed -n 's/^---- \(.*\) stdout ----$/\1/p' "$log")
  [ ${#failed[@]} -gt 0 ] || return 1
  printf 'vm: %s\n' "${failed[@]}" >>"$scratch/again"
  step "once more: ${failed[*]}"
  cargo test --workspace --quiet --test vm -- --test-threads 1 --exact "${failed[@]}"
}

# What Python would leave beside the guest's interpreters is new to cargo, and all that contains them built anew.
export PYTHONDONTWRITEBYTECODE=1

step "packages"
need_cargo
install_packages "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
# A newer Node than Debian's brings an npm of its own.
command -v node >/dev/null || install_packages nodejs
command -v npm >/dev/null || install_packages npm

step "format"
cargo fmt --all --check
# These programs are not crates, so cargo does not format them.
rustfmt --edition 2024 --check crates/vmm/preload/*.rs

step "build"
# Always the whole workspace: another choice of packages is another choice of features, and builds everything anew. With
# the tests: what only they ask of a library would otherwise build everything above it once more.
cargo build --workspace --all-targets --quiet
sandling=$PWD/target/debug/sandling

machines() {
  part "templates in $SANDLING_TEST_TEMPLATES" build_templates "$sandling" base code-interpreter agent
  # They share the host's cores: a few at a time.
  part "tests in virtual machines" vm_tests
}
code() {
  part "lints" cargo clippy --workspace --all-targets --quiet -- -D warnings
  part "interpreters" python3 -m unittest discover --quiet --start-directory crates/guest/interpreters/tests
  part "unit and integration tests" twice cargo test --workspace --quiet --lib --bins --test '[!v]*'
  part "hostile bytes" nice scripts/fuzz.sh "${SANDLING_FUZZ_SECONDS:-20}"
  part "hostile bytes from a network" nice scripts/fuzz.sh "${SANDLING_NETWORK_FUZZ_SECONDS:-10}" fuzz/network
}
step "the code, and its machines"
lanes machines code

others() {
  part "PandaStack's clients" twice conformance/pandastack/run.sh "$sandling"
  part "E2B's clients" twice conformance/e2b/run.sh "$sandling"
  part "the API and its document" conformance/schemathesis.sh "$sandling" "${SANDLING_SCHEMATHESIS_SECONDS:-30}"
  part "faults" twice conformance/faults/run.sh "$sandling" "${SANDLING_KILLS:-5}"
  part "MCP clients" twice conformance/mcp/run.sh "$sandling"
}
ours() {
  part "SDKs" twice env SANDLING_TEMPLATES="$SANDLING_TEST_TEMPLATES" sdk/test.sh "$sandling"
  part "the SDKs' shared cases, and the guides" twice sdk/conformance/run.sh "$sandling"
  part "the agent loop" twice conformance/agent/run.sh "$sandling"
}
step "clients of others, and ours"
lanes others ours

step "load"
twice target/debug/sandling-load --sandling "$sandling" --templates "$SANDLING_TEST_TEMPLATES" --out "$scratch" \
  --seconds "${SANDLING_LOAD_SECONDS:-15}" --rounds 50

step "nothing is left behind"
scripts/leftovers.sh

if [ -s "$scratch/again" ]; then
  printf '\nhad to be done twice:\n'
  cat "$scratch/again"
fi
