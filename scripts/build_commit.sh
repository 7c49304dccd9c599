#!/usr/bin/env bash
# Builds the program of another commit, and prints its path. For tests of upgrades.
#
#   scripts/build_commit.sh COMMIT
#
# COMMIT (the newest release's tag by default) is checked out and built below the target directory, once.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse --verify "${1:-$(git describe --tags --abbrev=0)}^{commit}")
place=${CARGO_TARGET_DIR:-$PWD/target}/commits/$commit
if [ ! -x "$place/sandling" ]; then
  mkdir -p "$place"
  git worktree prune
  git worktree add --force --detach "$place/source" "$commit" >&2
  (cd "$place/source" && CARGO_TARGET_DIR=$place/target cargo build --release --package sandling-cli >&2)
  mv "$place/target/release/sandling" "$place/sandling"
  git worktree remove --force "$place/source" >&2
  rm -rf "$place/target"
fi
echo "$place/sandling"
