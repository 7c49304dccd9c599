#!/usr/bin/env bash
# Builds the SDKs as they would be published and installs them where nothing else is.
#
#   sdk/conformance/install.sh DIRECTORY [python] [typescript]
#
# Makes DIRECTORY/python (a virtual environment with the wheel) and DIRECTORY/typescript (an npm project with the
# packed tarball), anew each time, and shows that both can be imported.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
target=${1:?usage: install.sh DIRECTORY [python] [typescript]}
shift
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(python typescript)
mkdir -p "$target"
target=$(cd "$target" && pwd)
pip=(-m pip --quiet --disable-pip-version-check)

install_python() {
  local built=$target/built-python
  rm -rf "$built" "$target/python" "$target/tools"
  python3 -m venv "$target/tools"
  "$target/tools/bin/python" "${pip[@]}" install build
  "$target/tools/bin/python" -m build --outdir "$built" "$here/../python" >/dev/null
  python3 -m venv "$target/python"
  "$target/python/bin/python" "${pip[@]}" install "$(echo "$built"/*.whl)[terminal]"
  (cd "$target" && python/bin/python -c 'import sandling; print("sandling", sandling.__version__, "for Python")')
}

install_typescript() {
  local built=$target/built-typescript
  rm -rf "$built" "$target/typescript"
  mkdir -p "$built" "$target/typescript"
  cp -r "$here/../typescript/." "$built"
  rm -rf "$built/node_modules" "$built/dist"
  (cd "$built" && npm install --silent --no-audit --no-fund && npm pack --silent >/dev/null)
  (cd "$target/typescript" && npm init --yes >/dev/null && npm pkg set type=module >/dev/null &&
    npm install --silent --no-audit --no-fund "$(echo "$built"/sandling-*.tgz)" &&
    node --eval 'import("sandling").then((sdk) => console.log("sandling", sdk.VERSION, "for TypeScript"))')
}

for sdk in "${wanted[@]}"; do "install_$sdk"; done
