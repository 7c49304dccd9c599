#!/bin/sh
# Run by mmdebstrap when Debian's packages are installed: what makes a Debian tree a sandbox's root. $1 is that tree.
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
