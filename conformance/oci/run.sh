#!/usr/bin/env bash
# Unpacks images with umoci and with Sandling, and compares the trees path by path.
#
#   conformance/oci/run.sh UNPACK
#
# UNPACK is the path of the example `unpack` of crates/oci. Needs root (owners, devices, loop mounts) and the Debian
# packages umoci, busybox-static, e2fsprogs and zstd.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
unpack=$(realpath "${1:?usage: run.sh UNPACK}")
[ "$(id -u)" = 0 ] || { echo "this comparison needs root" >&2; exit 1; }
for tool in umoci busybox e2fsck zstd; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; install it with apt-get" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'umount "$work/mounted" 2>/dev/null || true; rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1 python3 "$here/compare.py" "$unpack" "$work"
