#!/usr/bin/env bash
# Attacks the server's listener, without a token, and checks that clients with a token do not notice.
#
#   conformance/listener/run.sh SANDLING
#
# SANDLING is the path of the binary. Needs no templates and no virtual machines.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
SANDLING=$(realpath "${1:?usage: run.sh SANDLING}")
installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance
export SANDLING PYTHONDONTWRITEBYTECODE=1

mkdir -p "$installed"
. "$here/../../scripts/python.sh"
python_env "$installed/python" --requirement "$here/../pandastack/python/requirements.txt"

# The attack has one descriptor for each connection.
ulimit -n "$(ulimit -Hn)"
cd "$here"
timeout 600 "$installed/python/bin/python" -m pytest --quiet
