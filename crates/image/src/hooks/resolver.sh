#!/bin/sh
# Run by mmdebstrap before anything is added: how the host resolves names, which `finish.sh` removes. $1 is the tree.
set -eu
[ ! -e /etc/resolv.conf ] || cat /etc/resolv.conf >"$1/etc/resolv.conf"
