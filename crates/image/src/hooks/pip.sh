#!/bin/sh
# Run by mmdebstrap on a tree with pip: the recipe's packages from PyPI, for all users. $1 is the tree.
set -eu
umask 022
root=$1

# How this host reaches PyPI is lent for as long as it takes: variables are inherited, certificates copied.
lent=$root/tmp/pip
mkdir "$lent"
cp "${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}" "$lent/authorities.pem"
set -- $(cat "$(dirname "$0")/../pip-packages")

# Only wheels, because a source package runs code of its own to be built, and this is the host still. Debian's own versions
# of the same packages stay; those in /usr/local come first.
status=0
chroot "$root" env -u SSL_CERT_DIR HOME=/tmp/pip SSL_CERT_FILE=/tmp/pip/authorities.pem \
	PIP_CERT=/tmp/pip/authorities.pem timeout 1800 python3 -m pip install --no-deps --ignore-installed \
	--only-binary=:all: --no-cache-dir --no-input --progress-bar=off --disable-pip-version-check \
	--root-user-action=ignore --break-system-packages -- "$@" \
	</dev/null >"$lent/said" 2>&1 || status=$?
if [ "$status" != 0 ]; then
	# Lines that begin so are what the build's error tells.
	echo "pip cannot install $*" >&2
	sed -nE 's/^(ERROR|error): /E: /p; s/^Could not fetch URL/E: &/p' "$lent/said" | head -n 3 >&2
fi
rm -rf "$lent"
exit "$status"
