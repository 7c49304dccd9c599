#!/usr/bin/env bash
# Checks and tests the SDKs: style, types, generated files, docs/reference, unit tests and agent frameworks.
#
#   sdk/test.sh [SANDLING]
#
# Tests that need a server run only with the path of a binary. Tests that need virtual machines also need
# SANDLING_TEMPLATES. Otherwise they are skipped and listed. The shared cases are in conformance/run.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=${CARGO_TARGET_DIR:-$here/../target}/sdk-test
[ $# -eq 0 ] || { SANDLING_BINARY=$(realpath "$1") && export SANDLING_BINARY; }

. "$here/../scripts/python.sh"
python_env "$venv" --requirement "$here/python/tests/requirements.txt"
export PATH=$venv/bin:$PATH
(
  cd "$here/python"
  ruff check src scripts tests ../bench ../conformance ../../scripts/reference
  ruff format --check --quiet src scripts tests ../bench ../conformance ../../scripts/reference
  python scripts/generate_sync.py --check
  mypy
  # mypy no longer knows the oldest supported Python.
  vermin --quiet --no-tips --violations --target=3.9- src
  # The tests mostly wait, so they run in parallel. Tests of one file share fixtures and stay in one process.
  python -m pytest -rs --numprocesses 3 --dist loadfile
)
(
  cd "$here/typescript"
  npm install --silent --no-audit --no-fund
  npm run --silent check
  npm test --silent
)
[ -z "${SANDLING_BINARY:-}" ] || python "$here/../scripts/reference" --check "$SANDLING_BINARY"
