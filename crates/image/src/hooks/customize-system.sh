#!/bin/sh
# Run by mmdebstrap when all packages are installed: what makes a Debian tree a sandbox's root. $1 is that tree.
set -eu
umask 022
root=$1

# Who works here. The machine is the boundary, so the user may become root.
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash user
if [ -d "$root/etc/sudoers.d" ]; then
	echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
	chmod 0440 "$root/etc/sudoers.d/user"
fi
mkdir -p "$root/workspace"
chroot "$root" chown user:user /workspace
chmod 0777 "$root/workspace"

# What the host lent for the build must not stay: its name, resolver, mirrors and proxies.
rm -f "$root/etc/hostname" "$root/etc/hosts" "$root/etc/resolv.conf"
echo sandling >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
rm -f "$root"/etc/apt/sources.list.d/*
cp "$(dirname "$0")/../public-sources.list" "$root/etc/apt/sources.list"
chmod 0644 "$root/etc/apt/sources.list"

# A regular, empty file: the agent mounts the sandbox's own id over it.
rm -f "$root/etc/machine-id" "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_*

# Debian asks people not to mix pip with its own packages; in a machine that is thrown away, `pip install` should work.
if [ -d "$root/usr/share/python-wheels" ] || [ -e "$root/usr/bin/pip3" ]; then
	printf '[global]\nbreak-system-packages = true\nroot-user-action = ignore\n' >"$root/etc/pip.conf"
fi

# Imports read compiled files; whatever a package left uncompiled is compiled now, not in every sandbox.
if [ -x "$root/usr/bin/python3" ]; then
	chroot "$root" /usr/bin/python3 -c '
import compileall, sys
from py_compile import PycInvalidationMode
for directory in [path for path in sys.path if path.startswith("/usr/lib/python3") and "lib-dynload" not in path]:
    compileall.compile_dir(directory, quiet=2, force=False, invalidation_mode=PycInvalidationMode.TIMESTAMP)
'
fi

rm -rf "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/var/cache/ldconfig/aux-cache
rm -rf "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/man "$root"/root/.cache
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*

# Not /tmp, which mmdebstrap empties itself: the configuration that keeps its apt off the host's files is there.
