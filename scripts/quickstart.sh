#!/usr/bin/env bash
# Goes from a clone to code that runs in a virtual machine. A second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# Ends a numbered step.
took() { echo "took $((SECONDS - began)) s"; }

need_cargo
sandling=target/release/sandling
[ -e "$sandling" ] || echo "The first run takes about $((22 / $(nproc) + 4)) minutes on $(nproc) cores, most of them to compile."

say "1. Packages"
began=$SECONDS
# Rust's packages come from another host than Debian's, so both are downloaded at once.
cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu &
fetching=$!
install_packages "${RUN_PACKAGES[@]}"
wait "$fetching"
took

say "2. Building sandling"
began=$SECONDS
cargo build --release --package sandling-cli
took

say "3. Baking the template \`code-interpreter\` (minutes the first time, nothing later)"
began=$SECONDS
"$sandling" template build code-interpreter
took

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
