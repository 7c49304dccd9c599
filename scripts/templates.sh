#!/usr/bin/env bash
# The tests' templates: shared by all of them, they survive between runs. Sourced by the other scripts.

export SANDLING_TEST_TEMPLATES=${SANDLING_TEST_TEMPLATES:-${XDG_CACHE_HOME:-$HOME/.cache}/sandling-test/templates}

# In a home of its own, so that no server of the user's is asked.
build_templates() ( # SANDLING NAME…
  SANDLING_HOME=$(mktemp -d)
  trap 'rm -rf "$SANDLING_HOME"' EXIT
  export SANDLING_HOME SANDLING_TEMPLATES=$SANDLING_TEST_TEMPLATES
  for template in "${@:2}"; do
    "$1" template build "$template" || exit
  done
)
