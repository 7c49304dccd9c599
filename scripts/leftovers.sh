#!/usr/bin/env bash
# Fails if a machine of a test is still running.
set -euo pipefail
left=$(pgrep -f 'qemu-system-x86_64.*sandling.control' || true)
if [ -n "$left" ]; then
  echo "machines left behind:" $left >&2
  exit 1
fi
echo none
