#!/usr/bin/env bash
# Fuzzes the parsers of guest input: each target for SECONDS (60). The corpus in target/fuzz grows with each run.
#
#   scripts/fuzz.sh [SECONDS] [PACKAGE]
#
# PACKAGE is `fuzz` (the control channel) or `fuzz/network` (frames, DNS, TLS, WebSockets), which takes longer to build.
#
# Needs no nightly toolchain: the targets look for panics, hangs and unbounded memory, which libFuzzer finds without a
# sanitizer. With nightly and cargo-fuzz, `cargo fuzz run TARGET` works, too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
seconds=${1:-60}
package=${2:-fuzz}
out=$PWD/target/fuzz
host=x86_64-unknown-linux-gnu

need_cargo
install_packages g++

coverage=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares)
# With --target, the flags do not apply to build scripts and macros.
(cd "$package" && RUSTFLAGS="${coverage[*]} -Ccodegen-units=1 -Cdebug-assertions --cfg fuzzing" CARGO_TARGET_DIR=$out \
  cargo build --quiet --release --target "$host")

for source in "$package"/fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  mkdir -p "$out/corpus/$target" "$out/artifacts"
  dictionary=()
  [ ! -f "$package/$target.dict" ] || dictionary=(-dict="$package/$target.dict")
  echo "$target, for $seconds s"
  # The log is only needed to look into a finding.
  "$out/$host/release/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=512 \
    "${dictionary[@]}" -artifact_prefix="$out/artifacts/$target-" "$out/corpus/$target" \
    >"$out/$target.log" 2>&1 || { tail -50 "$out/$target.log" >&2; exit 1; }
  tail -1 "$out/$target.log"
done
