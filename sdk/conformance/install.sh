#!/usr/bin/env bash
# Installs the SDKs as users get them, into empty environments.
#
#   sdk/conformance/install.sh DIRECTORY SANDLING [python] [typescript]
#
# Makes DIRECTORY/python (a virtual environment with the wheel, which has the binary SANDLING in it) and
# DIRECTORY/typescript (an npm project with the packed tarball), recreated each time. Checks that both can be
# imported, and that the TypeScript declarations are complete.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
usage='usage: install.sh DIRECTORY SANDLING [python] [typescript]'
target=${1:?$usage}
sandling=$(realpath "${2:?$usage}")
shift 2
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(python typescript)
mkdir -p "$target"
target=$(cd "$target" && pwd)
dist=${CARGO_TARGET_DIR:-$here/../../target}/dist

install_python() {
  rm -rf "$target/python"
  python3 -m venv "$target/python"
  "$target/python/bin/python" -m pip install --quiet --disable-pip-version-check "$(echo "$dist"/*.whl)[terminal]"
  "$target/python/bin/sandling" --version
  (cd "$target" && python/bin/python -c 'import sandling; print("sandling", sandling.__version__, "for Python")')
}

install_typescript() {
  rm -rf "$target/typescript"
  mkdir -p "$target/typescript"
  (cd "$target/typescript" && npm init --yes >/dev/null && npm pkg set type=module >/dev/null &&
    npm install --silent --no-audit --no-fund "$dist"/sandling-*.tgz &&
    npx --no-install sandling --version &&
    node --eval 'import("sandling").then((sdk) => console.log("sandling", sdk.VERSION, "for TypeScript"))' &&
    npm install --silent --no-audit --no-fund --save-dev typescript@5 && cp "$here/typescript/types.ts" . &&
    npx --no-install tsc --noEmit --strict --module NodeNext --target ES2022 types.ts)
}

"$here/../../scripts/dist.sh" "$sandling" wheel npm
for sdk in "${wanted[@]}"; do "install_$sdk"; done
