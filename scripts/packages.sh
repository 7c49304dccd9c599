#!/usr/bin/env bash
# Installs Debian packages by name, those that are missing only. Sourced by the other scripts.

# What running sandboxes and building templates needs.
RUN_PACKAGES=(qemu-system-x86 qemu-utils mmdebstrap e2fsprogs uidmap ca-certificates gcc libc6-dev)
# What the tests need on top.
TEST_PACKAGES=(python3 python3-venv curl util-linux procps xz-utils busybox-static iproute2 git openssl patch)
# What the benchmarks compare with.
BENCH_PACKAGES=(bubblewrap runsc)

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "This needs root or sudo: $*" >&2
    return 1
  fi
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return 0
  fi
  echo "Installing ${missing[*]} …"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

need_cargo() {
  if ! command -v cargo >/dev/null; then
    echo "Rust is missing: install it with rustup (rustup.rs) and run this again." >&2
    return 1
  fi
}
