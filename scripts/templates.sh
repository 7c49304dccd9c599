#!/usr/bin/env bash
# The templates of the tests. All tests share them, and they survive between runs. Sourced by the other scripts.

export SANDLING_TEST_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${XDG_CACHE_HOME:-$HOME/.cache}/sandling-test/templates}

# Uses its own home, so that it does not use a server of the user.
build_templates() ( # SANDLING NAME…
  SANDLING_HOME=$(mktemp -d)
  trap 'rm -rf "$SANDLING_HOME"' EXIT
  export SANDLING_HOME SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
  for template in "${@:2}"; do
    "$1" template build "$template" || exit
  done
)
