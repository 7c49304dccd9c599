#!/usr/bin/env bash
# Checks the licenses, sources and duplicate versions of all dependencies with cargo-deny (deny.toml), which it installs
# if it is missing. Advisories are checked if a copy of the RustSec database is at $SANDLING_ADVISORY_DB: fetching it
# needs a network that CI does not have.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
root=${XDG_CACHE_HOME:-$HOME/.cache}/sandling-test/cargo-deny-$version
if [ ! -x "$root/bin/cargo-deny" ]; then
  # Unoptimized: it compiles in half the time and runs for a second.
  cargo install --quiet --locked --debug --root "$root" --version "$version" cargo-deny
fi
checks=(bans licenses sources)
if [ -d "${SANDLING_ADVISORY_DB:-}" ]; then
  checks+=(advisories)
else
  echo "advisories: not checked (SANDLING_ADVISORY_DB names no directory)"
fi
"$root/bin/cargo-deny" --offline --log-level error check "${checks[@]}"
