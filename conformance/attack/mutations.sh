#!/usr/bin/env bash
# Removes defenses from the source and checks that `sandling doctor --attack` notices each.
#
#   conformance/attack/mutations.sh together        all in one build
#   conformance/attack/mutations.sh each [NAME…]    one build for each
#
# Each patch in mutations/ removes one defense and names the entry that must not hold without it. The builds happen in a
# copy of the tree below the target directory, with the dependencies that are built already. Needs the same templates as
# run.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mode=${1:?usage: mutations.sh together | each [NAME…]}
shift
[ -z "${SANDLING_TEST_TEMPLATES:-}" ] || export SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
export PYTHONDONTWRITEBYTECODE=1
built=${CARGO_TARGET_DIR:-$root/target}
work=$built/mutations
tree=$work/tree
export CARGO_TARGET_DIR=$work/target
report=$work/report.json

fail() {
  echo "mutations: $*" >&2
  exit 1
}

# Copies every file that differs. A copy gets a new time, so that cargo builds what a patch had changed.
copy_tree() {
  mkdir -p "$tree"
  local file
  (cd "$root" && git ls-files --cached --others --exclude-standard) | while read -r file; do
    [ -f "$root/$file" ] || continue
    cmp -s "$root/$file" "$tree/$file" && continue
    mkdir -p "$tree/$(dirname "$file")"
    cp "$root/$file" "$tree/$file"
  done
}

# Links the dependencies that are built already. Cargo gives the workspace's crates other names, because of their path.
link_dependencies() {
  local part
  [ ! -d "$CARGO_TARGET_DIR/debug" ] || return 0
  mkdir -p "$CARGO_TARGET_DIR/debug"
  for part in .fingerprint build deps; do
    [ ! -d "$built/debug/$part" ] || cp -al "$built/debug/$part" "$CARGO_TARGET_DIR/debug/"
  done
}

# Outside any repository: git would ignore a directory that its repository ignores.
apply() { # PATCH
  (cd "$tree" && GIT_CEILING_DIRECTORIES=$work git apply -C1 "$1") ||
    fail "$(basename "$1") no longer applies: adapt it to the source that it changes"
}

expected() { # PATCH…
  sed -n 's/^Expected: //p' "$@"
}

# A test target is named, because with it cargo chooses the same features as for `cargo build --all-targets`.
build() {
  local guest
  guest=$(find "$built/guest" -path '*/release/sandling-guest' -type f 2>/dev/null | head -1)
  [ -z "$guest" ] || export SANDLING_GUEST_BINARY=${SANDLING_GUEST_BINARY:-$guest}
  (cd "$tree" && cargo build --quiet --workspace --bin sandling --test golden)
}

attack() { # ENTRY…
  local only=() entry status=0
  for entry in "$@"; do
    only+=(--only "$entry")
  done
  "$CARGO_TARGET_DIR/debug/sandling" doctor --attack --json "${only[@]}" >"$report" || status=$?
  [ "$status" = 1 ] || echo "mutations: the command ended with $status, not 1" >&2
  python3 "$here/check.py" broken "$report" "$@" && [ "$status" = 1 ]
}

link_dependencies
copy_tree
case $mode in
  together)
    patches=("$here"/mutations/*.patch)
    for patch in "${patches[@]}"; do
      apply "$patch"
    done
    build
    mapfile -t entries < <(expected "${patches[@]}")
    attack "${entries[@]}"
    ;;
  each)
    patches=("${@/#/$here/mutations/}")
    patches=("${patches[@]/%/.patch}")
    [ $# -gt 0 ] || patches=("$here"/mutations/*.patch)
    failed=()
    for patch in "${patches[@]}"; do
      echo "mutations: $(basename "$patch")"
      copy_tree
      apply "$patch"
      build
      attack "$(expected "$patch")" || failed+=("$(basename "$patch")")
    done
    [ ${#failed[@]} = 0 ] || fail "not noticed: ${failed[*]}"
    ;;
  *) fail "$mode is neither together nor each" ;;
esac
echo "mutations: each missing defense was noticed"
