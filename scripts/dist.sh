#!/usr/bin/env bash
# Makes packages for other hosts, so that only one host has to build: a Python wheel with the SDK and the binary, the
# npm package, and the binary alone.
#
#   scripts/dist.sh [BINARY]
#
# BINARY is a binary that is already built; by default the script makes a release build. It runs on hosts whose C
# library is at least as new as this host's. Everything goes to target/dist, which is recreated each time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

install_packages python3 python3-venv
command -v npm >/dev/null || install_packages nodejs npm
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
if [ $# -eq 0 ]; then
  need_cargo
  cargo build --release --package sandling-cli
  set -- "$target/release/sandling"
fi
binary=$1

out=$target/dist
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rm -rf "$out"
mkdir -p "$out"
install -m 755 "$binary" "$out/sandling"

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check build wheel
wheel() { "$scratch/venv/bin/python" -m wheel "$@" >/dev/null; }
"$scratch/venv/bin/python" -m build --outdir "$scratch" sdk/python >/dev/null
wheel unpack --dest "$scratch/tree" "$scratch"/sandling-*.whl
tree=$(echo "$scratch"/tree/sandling-*)
# Files here are installed next to the interpreter, where the SDK looks for the binary.
install -D -m 755 "$binary" "$tree/$(basename "$tree").data/scripts/sandling"
install -D -m 644 LICENSE "$(echo "$tree"/*.dist-info)/licenses/LICENSE"
sed -i 's/^Root-Is-Purelib: true/Root-Is-Purelib: false/' "$tree"/*.dist-info/WHEEL
rm "$scratch"/sandling-*.whl
wheel pack --dest-dir "$scratch" "$tree"
wheel tags --remove --platform-tag "linux_$(uname -m)" "$scratch"/sandling-*.whl
mv "$scratch"/sandling-*.whl "$out"

cp -r sdk/typescript "$scratch/typescript"
cp LICENSE "$scratch/typescript"
rm -rf "$scratch"/typescript/{node_modules,dist}
(cd "$scratch/typescript" && npm install --silent --no-audit --no-fund && npm pack --silent --pack-destination "$out" >/dev/null)
du -h "$out"/*
