#!/usr/bin/env bash
# Goes from a clone to code that runs in a virtual machine. A second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

template=code-interpreter
sandling=target/quick/sandling
builder=target/quick/build_template
started=$SECONDS

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# Ends a numbered step.
took() { echo "took $((SECONDS - began)) s"; }

# Both packages, whatever is built: another choice is another choice of features, and compiles every dependency again.
build() { cargo build --profile quick --package sandling-cli --package sandling-engine "$@"; }

need_cargo
[ -e "$sandling" ] || echo "The first run takes about ten minutes on two cores, most of them to compile. Each step says how long it took."

say "1. Packages, and what builds templates"
began=$SECONDS
# The compiler's own needs come first. Everything else is downloaded and installed while it works.
install_packages gcc libc6-dev
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [ -z "$(jobs -p)" ] || kill $(jobs -p) 2>/dev/null || true' EXIT
install_packages "${RUN_PACKAGES[@]}" >"$scratch/packages" 2>&1 &
installing=$!
build --bin build_template
wait "$installing" || { cat "$scratch/packages" >&2; exit 1; }
took

say "2. Building sandling, and the template \`$template\` at the same time"
began=$SECONDS
"$builder" "$template" >"$scratch/template" 2>&1 &
templating=$!
build --bin sandling
took

say "3. The rest of the template (minutes the first time, nothing later)"
began=$SECONDS
tail --lines=+1 --follow --pid="$templating" "$scratch/template"
wait "$templating"
took

say "4. Running print(sum(range(101))) in a sandbox"
"$sandling" run --verbose -c 'print(sum(range(101)))'
echo "$((SECONDS - started)) s in all"

say "What to try next"
cat <<EOT
  export PATH=\$PWD/target/quick:\$PATH
  sandling run --language bash -c 'uname -a; id; ls /'
  sandling run --json -c 'import os; print(os.urandom(4).hex())'
  sandling run -c 'import pandas; print(pandas.__version__)'
  sandling doctor                              # what this host can do
  sandling --help
  python3 -m venv .venv && .venv/bin/pip install ./sdk/python
  .venv/bin/python -c 'from sandling import Sandbox
with Sandbox.create() as sandbox: print(sandbox.run_code("import pandas; print(pandas.__version__)").stdout)'

This binary was compiled quickly. For a server, compile one with all optimizations: cargo build --release
EOT
