#!/usr/bin/env bash
# Fuzzes what a hostile guest can send, for SECONDS (60) per target. Needs a nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cargo +nightly fuzz --version >/dev/null 2>&1 || cargo install --quiet cargo-fuzz
for target in $(cd fuzz && cargo +nightly fuzz list); do
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
