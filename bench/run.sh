#!/usr/bin/env bash
# Measures Sandling, bubblewrap and gVisor in one run. Writes bench/out/sandboxes.{json,svg}. Arguments go to the bench
# program: --rounds N, --creates N, --alive N. The first argument can select another benchmark, which writes its results to
# files of its name:
#
#   --agent-day   a coding agent's forty commands in sandboxes that stay up, in turns with the host and the peers
#   --forks       forks, hibernation and checkpoints
#   --density     creates one after another, at once, and alive together
#   --growth      how cost grows with memory, writes, depth, files and numbers; growth-*.{json,svg}
#   --host-side   the steps of a cold restore until the guest's first instruction
#   --emulation   which options of QEMU and of the guest's kernel help without KVM; --profile shows where the time goes
#   --images      pulls and Dockerfiles beside podman
#   --copy        `cp` beside tar and bubblewrap
#   --fleet       three servers as a fleet: creates, waking on another node, a drain, and a simulated number of nodes
#   --gateway     the network gateway, without machines
#   --scrubber    how fast the gateway searches answers for secrets
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
if [ "${1:-}" = --fleet ]; then
  shift
  install_packages "${FLEET_BENCH_PACKAGES[@]}"
  cargo build --release --package sandling-cli
  target/release/sandling template build base
  exec python3 bench/fleet.py --sandling target/release/sandling --templates "$templates" "$@"
fi
if [ "${1:-}" = --emulation ]; then
  shift
  install_packages "${EMULATION_BENCH_PACKAGES[@]}"
  cargo build --release --package sandling-cli
  target/release/sandling template build agent
  exec python3 bench/emulation --templates "$templates" "$@"
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
