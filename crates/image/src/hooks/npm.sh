#!/bin/sh
# Run by mmdebstrap on a tree with npm: the recipe's packages from npm, for all users. $1 is the tree.
set -eu
umask 022
root=$1
# What the packages call their commands must not stand for the system's, which come first.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin

# How this host reaches the registry is lent for as long as it takes: variables are inherited, certificates copied.
lent=$root/tmp/npm
mkdir "$lent"
cp "${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}" "$lent/authorities.pem"
set -- $(cat "$(dirname "$0")/../npm-packages")

# Packages' own scripts are not run, nor git for those that are elsewhere: this is the host still, and no sandbox.
status=0
chroot "$root" env HOME=/tmp/npm NODE_EXTRA_CA_CERTS=/tmp/npm/authorities.pem \
	timeout 1800 npm install --global --prefix=/usr/local --cache=/tmp/npm/cache --ignore-scripts --omit=dev \
	--git=/bin/false \
	--no-audit --no-fund --no-update-notifier --loglevel=error -- "$@" </dev/null >"$lent/said" 2>&1 || status=$?
if [ "$status" != 0 ]; then
	# Lines that begin so are what the build's error tells.
	echo "npm cannot install $*" >&2
	sed -nE '/^npm (ERR!|error) [0-9]* *$/d; s/^npm (ERR!|error) [0-9]* */E: /p' "$lent/said" | head -n 3 >&2
fi
rm -rf "$lent"
exit "$status"
