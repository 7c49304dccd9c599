#!/usr/bin/env bash
# Installs each package of scripts/dist.sh in a clean Debian without a compiler, and runs code with it.
#
#   scripts/dist_test.sh [wheel] [npm] [deb] [tarball]
#   SANDLING_DIST_SUITE=noble scripts/dist_test.sh wheel deb     # the same on Ubuntu 24.04
#
# Needs root, and target/dist. Prints how long each step of a first hour takes. Every package gets a root file system
# and a home of its own, so each builds the default template again; without KVM that takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
dist=$(realpath "${CARGO_TARGET_DIR:-target}/dist")
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(wheel npm deb tarball)
install_packages mmdebstrap bubblewrap curl

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. scripts/clean_root.sh

step() { # NAME LINE
  local started=$SECONDS
  clean "$2" >"$scratch/output" 2>&1 || { cat "$scratch/output" && echo "failed: $1" && exit 1; }
  printf '  %4d s  %s\n' $((SECONDS - started)) "$1"
}

# What every package is tried with. A first command names the packages of the system that it needs, and a second one,
# after they were installed, builds the template and runs the code.
first_hour() { # SANDLING
  step "the first command says what is missing" "
    ! $1 run -c 'print(1)' 2>said
    sed -n 's/.*try again: //p' said >install.sh && grep -q 'apt-get install' install.sh || { cat said; exit 1; }"
  step "installing that" ". ./install.sh"
  step "the first answer, with the template" "[ \"\$($1 run -c 'print(6 * 7)')\" = 42 ]"
  step "the second answer" "[ \"\$($1 run -c 'print(6 * 7)')\" = 42 ]"
  step "the doctor" "$1 doctor"
}

try_wheel() {
  step "Python" "apt-get update && apt-get install -y --no-install-recommends python3-venv"
  step "pip install" "python3 -m venv venv && venv/bin/pip install /dist/sandling-*.whl"
  first_hour venv/bin/sandling
  step "the SDK" "venv/bin/python -c '
from sandling import Sandbox
with Sandbox.create() as sandbox:
    assert sandbox.run_code(\"print(6 * 7)\").stdout == \"42\\n\"'"
}
try_npm() {
  step "Node" "apt-get update && apt-get install -y --no-install-recommends nodejs npm"
  step "npm install" "npm init --yes && npm install --no-audit --no-fund /dist/sandling-*.tgz"
  first_hour "npx --no-install sandling"
  step "the SDK" "node --input-type module --eval '
import { Sandbox } from \"sandling\";
const sandbox = await Sandbox.create();
const { stdout } = await sandbox.runCode(\"print(6 * 7)\");
await sandbox.kill();
if (stdout !== \"42\\n\") throw new Error(stdout);'"
}
try_deb() {
  step "apt install" "apt-get update && apt-get install -y --no-install-recommends /dist/sandling_*_amd64.deb"
  step "the first answer, with the template" "[ \"\$(sandling run -c 'print(6 * 7)')\" = 42 ]"
  step "the doctor" "sandling doctor"
  step "removal leaves nothing but the home" "apt-get remove -y sandling && ! command -v sandling"
}
try_tarball() {
  step "tar" "cd /dist && sha256sum --check --ignore-missing SHA256SUMS && tar -xzf /dist/sandling-*.tar.gz -C /usr/local --strip-components 1"
  first_hour sandling
}

for package in "${wanted[@]}"; do
  echo "$package, in a clean root ($suite)"
  make_clean_root
  "try_$package"
done
echo "all packages work"
