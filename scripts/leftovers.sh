#!/usr/bin/env bash
# Fails if a machine of a test is still running. Each has a process of ours that keeps its jail; what ends at this moment
# may take a little.
set -euo pipefail
cd "$(dirname "$0")/.."
for _ in $(seq 50); do
  left=$(pgrep -f "^$PWD/target/[a-z]+/sandling(-jail)? __jail" || true)
  [ -n "$left" ] || { echo none && exit; }
  sleep 0.2
done
echo "machines left behind:" $left >&2
ps -o pid,lstart,args -p "$(echo $left | tr ' ' ,)" >&2
exit 1
