#!/usr/bin/env bash
# Makes the packages of a release in target/dist, which is recreated each time, so that users need no compiler.
#
#   scripts/dist.sh [BINARY] [wheel] [npm] [deb] [tarball]
#
#   wheel    the Python SDK with the binary
#   npm      the TypeScript SDK, and a package with the binary that it uses where it fits
#   deb      the binary, its completions and its systemd unit
#   tarball  the same files, for everything else
#
# BINARY is a binary that is already built; by default the script makes a release build that is linked statically, so
# that it runs on every x86-64 Linux. Without names, all four are made, with an SBOM of the Rust crates in the binary and
# of the npm packages in its dashboard, and checksums. scripts/dist_test.sh installs and uses each of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
platform=x86_64-unknown-linux-gnu
binary=
case ${1:-} in
*/*) binary=$(realpath "$1") && shift ;;
esac
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(wheel npm deb tarball)
complete=$([ $# -gt 0 ] || echo yes)

install_packages python3 python3-venv binutils
command -v npm >/dev/null || install_packages nodejs npm
if [ -z "$binary" ]; then
  need_cargo
  scripts/dashboard.sh
  RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --package sandling-cli --target "$platform"
  binary=$target/$platform/release/sandling
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=$target/dist
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rm -rf "$out"
mkdir -p "$out"
install -m 755 "$binary" "$out/sandling"

# The oldest C library that the binary runs with, as Python names it.
python_platform() {
  local needed
  needed=$(objdump -T "$binary" 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -V | tail -1)
  [ -n "$needed" ] || { echo "manylinux_2_5_x86_64.manylinux1_x86_64.musllinux_1_1_x86_64" && return; }
  echo "manylinux_${needed#GLIBC_}_x86_64" | tr . _
}

make_wheel() {
  local tree python=$scratch/venv/bin/python
  python3 -m venv "$scratch/venv"
  "$python" -m pip install --quiet --disable-pip-version-check build wheel
  "$python" -m build --outdir "$scratch" sdk/python >/dev/null
  "$python" -m wheel unpack --dest "$scratch/tree" "$scratch"/sandling-*.whl >/dev/null
  tree=$(echo "$scratch"/tree/sandling-*)
  # Files here are installed next to the interpreter, where the SDK looks for the binary.
  install -D -m 755 "$binary" "$tree/$(basename "$tree").data/scripts/sandling"
  install -D -m 644 LICENSE "$(echo "$tree"/*.dist-info)/licenses/LICENSE"
  sed -i 's/^Root-Is-Purelib: true/Root-Is-Purelib: false/' "$tree"/*.dist-info/WHEEL
  rm "$scratch"/sandling-*.whl
  "$python" -m wheel pack --dest-dir "$scratch" "$tree" >/dev/null
  "$python" -m wheel tags --remove --platform-tag "$(python_platform)" "$scratch"/sandling-*.whl >/dev/null
  mv "$scratch"/sandling-*.whl "$out"
}

# npm installs an optional package only where its `os` and `cpu` fit, so the SDK stays small elsewhere.
make_npm() {
  local with=$scratch/npm-binary
  install -D -m 755 "$binary" "$with/bin/sandling"
  cp LICENSE "$with"
  cat >"$with/package.json" <<JSON
{
  "name": "sandling-linux-x64",
  "version": "$version",
  "description": "The binary of Sandling for Linux on x86-64",
  "license": "Apache-2.0",
  "os": ["linux"],
  "cpu": ["x64"],
  "bin": { "sandling": "bin/sandling" },
  "files": ["bin"]
}
JSON
  cp -r sdk/typescript "$scratch/typescript"
  cp LICENSE "$scratch/typescript"
  rm -rf "$scratch"/typescript/{node_modules,dist}
  (
    cd "$scratch/typescript"
    npm install --silent --no-audit --no-fund
    npm pkg set "optionalDependencies.sandling-linux-x64=$version"
    npm pack --silent --pack-destination "$out" >/dev/null
    cd "$with"
    npm pack --silent --pack-destination "$out" >/dev/null
  )
}

# The files of a system: what a package manager or an administrator installs below /usr.
install_tree() { # DIRECTORY
  install -D -m 755 "$binary" "$1/bin/sandling"
  install -d "$1/share/bash-completion/completions" "$1/share/zsh/vendor-completions" "$1/share/fish/vendor_completions.d"
  "$binary" completions bash >"$1/share/bash-completion/completions/sandling"
  "$binary" completions zsh >"$1/share/zsh/vendor-completions/_sandling"
  "$binary" completions fish >"$1/share/fish/vendor_completions.d/sandling.fish"
  install -D -m 644 --target-directory "$1/share/doc/sandling" README.md CHANGELOG.md SECURITY.md LICENSE
}

make_deb() {
  local tree=$scratch/deb depends
  install_tree "$tree/usr"
  mv "$tree/usr/share/doc/sandling/LICENSE" "$tree/usr/share/doc/sandling/copyright"
  install -D -m 644 scripts/sandling.service "$tree/usr/lib/systemd/system/sandling.service"
  sed -i s,/usr/local/bin,/usr/bin, "$tree/usr/lib/systemd/system/sandling.service"
  depends=$(printf ', %s' "${RUN_PACKAGES[@]}")
  install -d "$tree/DEBIAN"
  cat >"$tree/DEBIAN/control" <<CONTROL
Package: sandling
Version: $version
Architecture: amd64
Maintainer: Sandling
Section: admin
Priority: optional
Depends: ${depends#, }$(objdump -T "$binary" 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -V | tail -1 |
    sed 's/GLIBC_\(.*\)/, libc6 (>= \1), libgcc-s1/')
Installed-Size: $(du --summarize --block-size=1024 "$tree" | cut -f1)
Description: disposable virtual machines for AI agents
 Sandling runs code that a model wrote in a virtual machine with its own kernel, and returns the output and the exit
 code. One binary is the server, the command line, the MCP server and the agent loop.
CONTROL
  dpkg-deb --build --root-owner-group -Zxz "$tree" "$out/sandling_${version}_amd64.deb" >/dev/null
}

make_tarball() {
  local name=sandling-$version-linux-x86_64
  install_tree "$scratch/$name"
  install -D -m 644 scripts/sandling.service "$scratch/$name/lib/systemd/system/sandling.service"
  tar --create --gzip --file "$out/$name.tar.gz" --directory "$scratch" --owner 0 --group 0 --sort name "$name"
}

# Two documents in CycloneDX's form. npm knows this form since its tenth version.
make_sbom() {
  need_cargo
  cargo install --quiet --root "$target/tools" --locked cargo-cyclonedx@0.5.7
  PATH=$target/tools/bin:$PATH cargo cyclonedx --quiet --format json --target "$platform" --override-filename sandling-sbom \
    --manifest-path crates/cli/Cargo.toml
  mv crates/cli/sandling-sbom.json "$out/sandling-$version-crates.cdx.json"
  find crates bench fuzz tests -name sandling-sbom.json -delete 2>/dev/null || true
  (cd dashboard && npx --yes npm@10 sbom --sbom-format cyclonedx --omit dev --package-lock-only) \
    >"$out/sandling-$version-dashboard.cdx.json"
}

for package in "${wanted[@]}"; do "make_$package"; done
if [ -n "$complete" ]; then
  make_sbom
  (cd "$out" && sha256sum -- * >SHA256SUMS)
fi
du -h "$out"/*
