#!/usr/bin/env bash
# Installs missing Debian packages. Sourced by the other scripts.

# For running sandboxes and building templates.
RUN_PACKAGES=(qemu-system-x86 qemu-utils mmdebstrap e2fsprogs uidmap ca-certificates gcc libc6-dev)
# For the tests, in addition.
TEST_PACKAGES=(python3 python3-venv curl util-linux procps xz-utils busybox-static iproute2 git openssl patch g++
  docker-registry skopeo umoci buildah perl zstd etcd-server nftables faketime r-base-core default-jdk-headless)
# For the tests of the dashboard, in addition.
DASHBOARD_TEST_PACKAGES=(chromium)
# For the test of reverse proxies, in addition. Debian starts both as services where it runs systemd.
REVERSE_PROXY_TEST_PACKAGES=(nginx-light caddy)
# For the benchmarks, as peers.
BENCH_PACKAGES=(bubblewrap runsc)
AGENT_DAY_PACKAGES=(podman git gcc make python3-pip python3-pytest)
EMULATION_BENCH_PACKAGES=(busybox-static binutils linux-perf)
IMAGES_BENCH_PACKAGES=(podman runc docker-registry skopeo)
FLEET_BENCH_PACKAGES=(etcd-server)

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

# Prints the named packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

# Installing one package may remove another: Debian's QEMU removes a qemu-utils that is newer than Debian's. So a second
# round installs what is missing then.
install_packages() {
  local missing
  for _ in 1 2; do
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "Installing ${missing[*]} …"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  done
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} -gt 0 ]; then
    echo "These packages do not stay installed beside the others: ${missing[*]}" >&2
    return 1
  fi
}

need_cargo() {
  if ! command -v cargo >/dev/null; then
    echo "Rust is missing: install it with rustup (rustup.rs) and run this again." >&2
    return 1
  fi
}
