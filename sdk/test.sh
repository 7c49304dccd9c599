#!/usr/bin/env bash
# Checks and tests the SDKs: style, types, that generated files and docs/reference are current, units, agent frameworks.
#
#   sdk/test.sh [SANDLING]
#
# With the path of a binary also what needs a server, and with SANDLING_TEMPLATES what needs virtual machines; without
# them those tests are skipped, and say so. The shared cases are conformance/run.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=${CARGO_TARGET_DIR:-$here/../target}/sdk-test
[ $# -eq 0 ] || { SANDLING_BINARY=$(realpath "$1") && export SANDLING_BINARY; }

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/python/tests/requirements.txt"
export PATH=$venv/bin:$PATH
(
  cd "$here/python"
  ruff check src scripts tests ../bench ../conformance ../../scripts/reference
  ruff format --check --quiet src scripts tests ../bench ../conformance ../../scripts/reference
  python scripts/generate_sync.py --check
  mypy
  # Of the oldest Python that it is for, mypy knows nothing any more.
  vermin --quiet --no-tips --violations --target=3.9- src
  # Most of the time they wait. What a file's tests share stays theirs.
  python -m pytest -rs --numprocesses 3 --dist loadfile
)
(
  cd "$here/typescript"
  npm install --silent --no-audit --no-fund
  npm run --silent check
  npm test --silent
)
[ -z "${SANDLING_BINARY:-}" ] || python "$here/../scripts/reference" --check "$SANDLING_BINARY"
