#!/usr/bin/env bash
# Runs the shared cases with every SDK against a server with real virtual machines.
#
#   sdk/conformance/run.sh SANDLING [python] [async] [python39] [typescript] [node18] [docs] [slow_docs]
#
# SANDLING is the path of the binary. `python39` and `node18` use the oldest supported Python and Node. `docs` runs the
# blocks of README.md and docs/, except those that take minutes, which `slow_docs` runs. By default `async`, `python39`,
# `node18` and `docs` run: `python` and `typescript` run the same code on the versions of this system. No registry has
# Python 3.9: if it is missing, and you named no runner, the script prints a note and runs `python` instead.
# SANDLING_TEST_TEMPLATES names the directory with the templates `base` and `code-interpreter`; by default the templates of
# the user's home are used. Exits with 0 only if no case failed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [python] [async] [python39] [typescript] [node18] [docs] [slow_docs]}")
shift
runners=("$@")
python39() {
  local candidate
  for candidate in python3.9 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.9.*/bin/python3; do
    "$candidate" -c 'import sys; print(sys.executable)' 2>/dev/null && return
  done
  echo "conformance: there is no Python 3.9 here" >&2
  return 1
}
if [ ${#runners[@]} -eq 0 ]; then
  runners=(async node18 docs)
  if python39 >/dev/null; then runners+=(python39); else runners+=(python); fi
fi
installed=${CARGO_TARGET_DIR:-$here/../../target}/sdk-conformance
. "$here/../../conformance/server.sh"
. "$here/../../scripts/python.sh"
trap 'clean_up "$installed/server.log"' EXIT

case_python() { "$installed/python/bin/python" "$here/python/run.py" sync; }
case_async() { "$installed/python/bin/python" "$here/python/run.py" async; }
case_python39() {
  local python=$installed/python39/bin/python wheels=${CARGO_TARGET_DIR:-$here/../../target}/dist
  rm -rf "$installed/python39"
  "$(python39)" -m venv "$installed/python39"
  "$python" -m pip install --quiet --disable-pip-version-check "$(echo "$wheels"/*.whl)[terminal]"
  "$python" "$here/python/run.py" sync
}
case_typescript() { # [NODE]
  # Node finds packages relative to the file, so the runner is copied next to the package.
  cp "$here"/typescript/*.mjs "$installed/typescript/"
  CASES=$here/cases.json "${1:-node}" "$installed/typescript/run.mjs"
}
case_node18() { case_typescript "$(node_of 18)"; }
# Installs a version of Node from npm's registry, and prints its path.
node_of() { # VERSION
  npm install --silent --no-audit --no-fund --prefix "$installed/node$1" "node@$1" >&2
  echo "$installed/node$1/node_modules/node/bin/node"
}

case_docs() { # [slow]
  python_env "$installed/python" anthropic openai
  (cd "$installed/typescript" && npm install --silent --no-audit --no-fund typescript@5 @types/node@18)
  NODES="$(node_of 18) $(node_of 20)" "$installed/python/bin/python" "$here/docs.py" "$installed/typescript" "$@"
}
case_slow_docs() { case_docs slow; }

sdks=()
[[ " ${runners[*]} " =~ \ (python|async|python39|docs|slow_docs)\  ]] && sdks+=(python)
[[ " ${runners[*]} " =~ \ (typescript|node18|docs|slow_docs)\  ]] && sdks+=(typescript)
"$here/install.sh" "$installed" "$sandling" "${sdks[@]}"
[ ${#sdks[@]} -lt 2 ] || "$here/local.sh" "$installed" "$sandling" || fail "the local server is not shared"
start_server
for runner in "${runners[@]}"; do
  echo "conformance: $runner"
  "case_$runner" || fail "$runner failed"
done
nothing_is_left
stop_server
exit "$failed"
