#!/usr/bin/env bash
# Builds the dashboard into dashboard/dist. The next `cargo build` embeds it in the binary.
#
#   scripts/dashboard.sh
#
# Needs Node.js 20 or newer and npm. Without this step, the binary works and /dashboard/ says how to get the dashboard.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

command -v npm >/dev/null || install_packages nodejs npm
cd dashboard
npm ci --no-audit --no-fund --loglevel=error
npm run --silent types
find dist -mindepth 1 ! -name .gitignore -delete
npm run --silent build
