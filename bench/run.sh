#!/usr/bin/env bash
# Measures Sandling, bubblewrap and gVisor in one run. Writes bench/out/sandboxes.{json,svg}. Arguments go to the bench
# program: --rounds N, --creates N, --alive N. With --forks it measures forks, hibernation and checkpoints instead, and
# writes bench/out/forks.{json,svg}. With --gateway it measures the network gateway, without machines, and writes
# bench/out/gateway.json. With --scrubber it measures how fast the gateway searches answers for secrets.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
need_cargo
if [ "${1:-}" = --gateway ]; then
  shift
  cargo build --release --package sandling-bench --bin sandling-gateway
  exec target/release/sandling-gateway "$@"
fi
if [ "${1:-}" = --scrubber ]; then
  exec cargo bench --package sandling-network --bench scrubber
fi
install_packages "${RUN_PACKAGES[@]}" "${BENCH_PACKAGES[@]}"
cargo build --release --package sandling-cli --package sandling-bench
templates=${SANDLING_TEMPLATES:-${SANDLING_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/sandling}/templates}
for template in base code-interpreter; do
  target/release/sandling template build "$template"
done
exec target/release/sandling-bench --sandling target/release/sandling --templates "$templates" "$@"
