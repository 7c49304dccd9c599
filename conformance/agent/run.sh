#!/usr/bin/env bash
# Tests `sandling agent`, with its own loop and with other command lines. A scripted model speaks the three APIs and
# misbehaves. The virtual machines are real.
#
#   conformance/agent/run.sh SANDLING
#
# SANDLING is the path of the binary. SANDLING_TEST_TEMPLATES names the directory with the templates `base` and
# `agent`. Exits with 0 only if no case failed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING}")
. "$here/../server.sh"
trap 'clean_up "$here/../../target/agent-conformance.log"' EXIT

start_server
python3 "$here/cases.py" "$sandling" || fail "sandling agent failed"
python3 "$here/terminal.py" "$sandling" || fail "sandling agent at a terminal failed"
nothing_is_left
stop_server
python3 "$here/engines.py" "$sandling" || fail "sandling agent --engine failed"
exit "$failed"
