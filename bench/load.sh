#!/usr/bin/env bash
# Puts a server under load and measures what HTTP adds to a command. Writes bench/out/load.json.
# Arguments go to the program: --clients N, --seconds N, --rounds N.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
need_cargo
install_packages "${RUN_PACKAGES[@]}"
cargo build --release --package sandling-cli --package sandling-bench
templates=${SANDLING_TEMPLATES:-${SANDLING_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/sandling}/templates}
target/release/sandling template build base
exec target/release/sandling-load --sandling target/release/sandling --templates "$templates" "$@"
