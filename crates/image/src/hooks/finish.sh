#!/bin/sh
# Run by mmdebstrap at the end: nothing of the build and its host stays. $1 is the tree.
set -eu
umask 022
root=$1

# What the host lent: its name, resolver, mirrors and proxies.
rm -f "$root/etc/hostname" "$root/etc/hosts" "$root/etc/resolv.conf"
echo sandling >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
rm -f "$root"/etc/apt/sources.list.d/*
cp "$(dirname "$0")/../public-sources.list" "$root/etc/apt/sources.list"
chmod 0644 "$root/etc/apt/sources.list"

rm -rf "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/var/cache/ldconfig/aux-cache
rm -rf "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/man "$root"/root/.cache
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*

# Not /tmp, which mmdebstrap empties itself: the configuration that keeps its apt off the host's files is there.
