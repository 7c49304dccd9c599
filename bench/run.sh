#!/usr/bin/env bash
# Measures Sandling, bubblewrap and gVisor in one run. Writes bench/out/sandboxes.{json,svg}. Arguments go to the bench
# program: --rounds N, --creates N, --alive N. With --forks it measures forks, hibernation and checkpoints instead, and
# writes bench/out/forks.{json,svg}. With --gateway it measures the network gateway, without machines, and writes
# bench/out/gateway.json. With --agent-day it runs a coding agent's forty commands in sandboxes that stay up, and writes
# bench/out/agent_day.{json,svg}. With --scrubber it measures how fast the gateway searches answers for secrets. With
# --images it measures pulls and Dockerfiles beside podman, and writes bench/out/images.json. With --copy it measures `cp`
# beside tar and bubblewrap, and writes bench/out/copy.json.
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
templates=${SANDLING_TEMPLATES:-${SANDLING_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/sandling}/templates}
if [ "${1:-}" = --images ]; then
  shift
  install_packages "${RUN_PACKAGES[@]}" "${IMAGES_BENCH_PACKAGES[@]}"
  cargo build --release --package sandling-cli
  target/release/sandling template build base
  exec python3 bench/images.py --sandling target/release/sandling --templates "$templates" "$@"
fi
install_packages "${RUN_PACKAGES[@]}" "${BENCH_PACKAGES[@]}"
if [ "${1:-}" = --copy ]; then
  shift
  cargo build --release --package sandling-cli
  target/release/sandling template build base
  exec python3 bench/copy.py --sandling target/release/sandling --templates "$templates" "$@"
fi
built=(base code-interpreter)
if [ "${1:-}" = --agent-day ]; then
  # The host runs the same commands as the sandboxes.
  install_packages "${AGENT_DAY_PACKAGES[@]}"
  built=(agent)
fi
cargo build --release --package sandling-cli --package sandling-bench
for template in "${built[@]}"; do
  target/release/sandling template build "$template"
done
exec target/release/sandling-bench --sandling target/release/sandling --templates "$templates" "$@"
