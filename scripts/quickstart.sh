#!/usr/bin/env bash
# Goes from a clone to code that runs in a virtual machine. A second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "1. Packages"
need_cargo
install_packages "${RUN_PACKAGES[@]}"
echo "all there"

say "2. Building sandling"
cargo build --release --package sandling-cli
sandling=target/release/sandling

say "3. Baking the template \`code-interpreter\` (minutes the first time, nothing later)"
"$sandling" template build code-interpreter

say "4. Running print(sum(range(101))) in a sandbox"
"$sandling" run --verbose -c 'print(sum(range(101)))'

say "What to try next"
cat <<EOF
  $sandling run --language bash -c 'uname -a; id; ls /'
  $sandling run --json -c 'import os; print(os.urandom(4).hex())'
  $sandling run -c 'import pandas; print(pandas.__version__)'
  $sandling doctor                             # what this host can do
  $sandling --help
  python3 -m venv .venv && .venv/bin/pip install ./sdk/python
  SANDLING_BINARY=$sandling .venv/bin/python -c 'from sandling import Sandbox
with Sandbox.create() as sandbox: print(sandbox.run_code("import pandas; print(pandas.__version__)").stdout)'
EOF
