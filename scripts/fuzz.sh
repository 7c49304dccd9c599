#!/usr/bin/env bash
# Fuzzes the parsers of bytes from guests, clients, servers and imported files. Runs one target per core at once.
#
#   scripts/fuzz.sh [SECONDS] [TARGET…]
#
# SECONDS (60) is how long each target runs; with 0, the script only builds them. Without a TARGET, all run. The corpus in
# target/fuzz grows with each run; it begins with fuzz/corpus. An input that a target fails on is in
# target/fuzz/artifacts: fix the parser, and add the input to fuzz/corpus. SANDLING_FUZZ_SEED repeats an earlier run, as far
# as the host is as fast; its seed is in the log. With SANDLING_FUZZ_OPT_LEVEL=0, the targets are built in a third of the
# time and run more slowly.
#
# Needs no nightly toolchain: the targets look for panics, hangs and unbounded memory, which libFuzzer finds without a
# sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz/corpus)
export out=$PWD/target/fuzz

need_cargo
install_packages g++

# The whole workspace is named, so that dependencies have the features that the tests built them with. Only the fuzzer
# is built. It never starts a guest.
SANDLING_GUEST_BINARY=${SANDLING_GUEST_BINARY:-/bin/true} CARGO_INCREMENTAL=0 \
  RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/fuzz_rustc.sh \
  cargo build --quiet --workspace --example fuzz --features sandling-fuzz/libfuzzer
mkdir -p "$out/artifacts"
cp target/debug/examples/fuzz "$out/fuzz"

[ "$seconds" != 0 ] || exit 0

# Runs one target. Its log is only needed to look into a finding. One input may take long, because CI leaves little time for
# this.
run() { # SECONDS TARGET
  mkdir -p "$out/corpus/$2"
  local log=$out/$2.log dictionary=()
  [ ! -f "fuzz/dictionaries/$2.dict" ] || dictionary=(-dict="fuzz/dictionaries/$2.dict")
  SANDLING_FUZZ_TARGET=$2 "$out/fuzz" -seed="${SANDLING_FUZZ_SEED:-0}" -max_total_time="$1" -timeout=1200 -rss_limit_mb=1024 "${dictionary[@]}" \
    -artifact_prefix="$out/artifacts/$2-" "$out/corpus/$2" "fuzz/corpus/$2" >"$log" 2>&1 ||
    { echo "$2 failed:" >&2; tail -50 "$log" >&2; exit 255; }
  printf '%-14s %s\n' "$2" "$(tail -1 "$log")"
}
export -f run

printf '%s\n' "${targets[@]}" | xargs --max-procs "$(nproc)" --max-args 1 bash -c 'run "$@"' - "$seconds"
