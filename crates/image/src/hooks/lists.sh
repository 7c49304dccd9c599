#!/bin/sh
# Run by mmdebstrap before anything is downloaded: the package lists that this build has already fetched and checked.
# Only the lists: apt keeps a lock and a private directory beside them.
set -eu
lists=$(dirname "$0")/../apt/state/lists
find "$lists" -maxdepth 1 -type f ! -name lock -exec cp -t "$1/var/lib/apt/lists" {} +
