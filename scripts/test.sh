#!/usr/bin/env bash
# Installs what the tests need and runs all of them, with real virtual machines. This is what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/templates.sh

step() { printf '\n==> %s\n' "$*"; }

# Emulated machines on a host that others use, too: what fails there is done once more, and then counts. What needed it
# is said at the end.
again=()
twice() {
  "$@" && return
  again+=("$*")
  step "once more: $*"
  "$@"
}

# What Python would leave beside the guest's interpreters is new to cargo, and all that contains them built anew.
export PYTHONDONTWRITEBYTECODE=1

step "packages"
need_cargo
install_packages "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
# A newer Node than Debian's brings an npm of its own.
command -v node >/dev/null || install_packages nodejs
command -v npm >/dev/null || install_packages npm

step "format and lints"
cargo fmt --all --check
# These two are no crates, so cargo does not know of them.
rustfmt --edition 2024 --check crates/vmm/preload/{preload,thaw}.rs
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "build"
# With the tests: what only they ask of a library would otherwise build everything above it once more.
cargo build --workspace --all-targets --quiet
sandling=$PWD/target/debug/sandling

step "templates in $SANDLING_TEST_TEMPLATES"
build_templates "$sandling" base code-interpreter agent

step "interpreters"
python3 -m unittest discover --quiet --start-directory crates/guest/interpreters/tests

step "unit and integration tests"
# Always the whole workspace: another choice of packages is another choice of features, and builds everything anew.
twice cargo test --workspace --quiet --lib --bins --test '[!v]*'
# Real machines under emulation share the host's cores: a few at a time.
twice cargo test --workspace --quiet --test vm -- --test-threads "${SANDLING_TEST_THREADS:-3}"

step "PandaStack's clients"
twice conformance/pandastack/run.sh "$sandling"

step "E2B's clients"
twice conformance/e2b/run.sh "$sandling"

step "the API and its document"
conformance/schemathesis.sh "$sandling" "${SANDLING_SCHEMATHESIS_SECONDS:-30}"

step "faults"
twice conformance/faults/run.sh "$sandling" "${SANDLING_KILLS:-5}"

step "SDKs"
SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES twice sdk/test.sh "$sandling"
twice sdk/conformance/run.sh "$sandling"

step "MCP clients"
twice conformance/mcp/run.sh "$sandling"

step "the agent loop"
twice conformance/agent/run.sh "$sandling"

step "load"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
twice target/debug/sandling-load --sandling "$sandling" --templates "$SANDLING_TEST_TEMPLATES" --out "$scratch" \
  --seconds "${SANDLING_LOAD_SECONDS:-15}" --rounds 50

step "hostile bytes"
scripts/fuzz.sh "${SANDLING_FUZZ_SECONDS:-20}"
scripts/fuzz.sh "${SANDLING_NETWORK_FUZZ_SECONDS:-10}" fuzz/network

step "nothing is left behind"
scripts/leftovers.sh

[ ${#again[@]} = 0 ] || printf '\nhad to be done twice: %s\n' "${again[@]}"
