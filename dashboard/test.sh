#!/usr/bin/env bash
# Tests the dashboard in Chromium, against a server with real virtual machines.
#
#   dashboard/test.sh SANDLING [NAME…]
#
# SANDLING is the binary, built after scripts/dashboard.sh. Templates are taken from SANDLING_TEMPLATES; `base` and
# `code-interpreter` must be there. With NAMEs, only tests whose names contain one of them run. With SANDLING_PICTURES=1,
# the script also takes the screenshots in docs/pictures, and with SANDLING_MORE_PICTURES=DIR those of all other pages.
set -euo pipefail
binary=$(realpath "$1")
shift
cd "$(dirname "$0")"
. ../scripts/packages.sh

install_packages "${DASHBOARD_TEST_PACKAGES[@]}"
command -v npm >/dev/null || install_packages nodejs npm
[ -d node_modules/playwright-core ] || npm ci --no-audit --no-fund --loglevel=error

scratch=$(mktemp -d)
export SANDLING_HOME=$scratch/home SANDLING_BINARY=$binary SANDLING_SCRATCH=$scratch
unset SANDLING_API SANDLING_TOKEN
"$binary" serve --listen 127.0.0.1:0 --webhook-allow-private >"$scratch/server.log" 2>&1 &
server=$!
end() {
  "$binary" rm --all >/dev/null 2>&1 || true
  kill "$server" 2>/dev/null && wait "$server" || true
  rm -rf "$scratch"
}
trap end EXIT
for _ in $(seq 100); do
  "$binary" ls >/dev/null 2>&1 && break
  sleep 0.2
done
node test/run.mjs "$@"
