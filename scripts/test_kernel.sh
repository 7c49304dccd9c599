#!/usr/bin/env bash
# Downloads Debian's newest 6.12 cloud kernel into DIR once, unpacks it there and prints its path.
set -euo pipefail
mkdir -p "$1"
cd "$1"
if [ ! -d root ]; then
  package=$(apt-cache pkgnames linux-image-6.12. | grep -e '-cloud-amd64$' | sort -V | tail -1)
  apt-get -qq download "$package" >&2
  dpkg-deb -x "$package"_*.deb "unpacked.$$"
  rm -f "$package"_*.deb
  # Another process may have unpacked it meanwhile.
  mv -T "unpacked.$$" root 2>/dev/null || rm -r "unpacked.$$"
fi
echo "$PWD/root"
