#!/usr/bin/env bash
# The templates of the tests. All tests share them, and they survive between runs. Sourced by the other scripts.

export SANDLING_TEST_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${XDG_CACHE_HOME:-$HOME/.cache}/sandling-test/templates}

# Uses its own home, so that it does not use a server of the user. Unpacks in memory if at least 8 GiB are available,
# because a disk that discards blocks at once takes minutes to delete the files.
build_templates() ( # SANDLING TEMPLATE…
  SANDLING_HOME=$(mktemp -d)
  trap 'rm -rf "$SANDLING_HOME"' EXIT
  if [ -w /dev/shm ] && [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -gt $((8 << 20)) ]; then
    export TMPDIR=/dev/shm
  fi
  export SANDLING_HOME SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
  for template in "${@:2}"; do
    "$1" template build "$template" || exit
  done
)
