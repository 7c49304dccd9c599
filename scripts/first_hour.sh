#!/usr/bin/env bash
# Walks through a new user's first hour in a clean Debian with an empty home, and prints how long each step took.
#
#   scripts/first_hour.sh [TEMPLATES]
#
# Installs the wheel and the npm packages in target/dist, which `scripts/dist.sh [BINARY] wheel npm` makes. TEMPLATES (those
# of the tests) is a directory with the template code-interpreter, which is copied as one that a colleague built. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/templates.sh
dist=$(realpath "${CARGO_TARGET_DIR:-target}/dist")
templates=$(realpath "${1:-$SANDLING_TEST_TEMPLATES}")
install_packages mmdebstrap bubblewrap
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. scripts/clean_root.sh

echo "| step | seconds |"
echo "|---|---|"
make_clean_root
mkdir -p "$scratch/root/opt/templates"
cp -r --reflink=auto "$templates/." "$scratch/root/opt/templates"
rm -f "$scratch/root/opt/templates/lock"
install -m 644 scripts/first_hour/steps.sh scripts/first_hour/model.py sdk/python/tests/frameworks/model_server.py "$scratch/root/opt"
# One session, because the server that a command starts ends with it.
# Test hosts may have a mirror of the registries at reserved addresses.
clean ". /opt/steps.sh" --setenv SANDLING_TEMPLATES /opt/templates \
  --setenv SANDLING_NETWORK_OPEN 192.0.2.0/24,198.51.100.0/24,203.0.113.0/24
