#!/usr/bin/env bash
# Tests what models and programs do with desktops, against a server with real virtual machines.
#
#   conformance/desktop/run.sh SANDLING [sdk] [sdk_typescript] [view] [browser] [browser_typescript] [mcp] [agent]
#
# `sdk` and `sdk_typescript` use the desktop through both SDKs, `view` looks at the screen as a VNC client, `browser` and
# `browser_typescript` control Chromium with Playwright from PyPI and npm, `mcp` uses the tools with the official MCP
# client, and `agent` lets a scripted model use the computer tools of the model APIs. `sdk` also prints how soon a new
# sandbox shows its screen.
#
# SANDLING is the path of the binary. SANDLING_TEST_TEMPLATES names the directory with the template `desktop`, which
# takes 20 minutes to build; scripts/test.sh therefore does not run this. Exits with 0 only if no case failed and nothing
# was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [SUITE...]}")
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(sdk sdk_typescript view browser browser_typescript mcp agent)
installed=${CARGO_TARGET_DIR:-$here/../../target}/desktop-conformance
. "$here/../server.sh"
. "$here/../../scripts/python.sh"
trap 'clean_up "$installed/server.log"' EXIT

install_sdk() { install_browser; }
install_sdk_typescript() { install_browser_typescript; }
install_view() { install_browser; }
install_browser() { python_env "$installed/python" 'playwright>=1.50,<2' "$here/../../sdk/python"; }
install_browser_typescript() {
  mkdir -p "$installed/typescript"
  (cd "$here/../../sdk/typescript" && npm install --silent --no-audit --no-fund && npm run --silent build)
  cp "$here/"*.mjs "$installed/typescript/"
  (cd "$installed/typescript" && npm init --yes >/dev/null && npm install --silent --no-audit --no-fund \
    playwright-core@1 "$here/../../sdk/typescript")
}
install_mcp() { python_env "$installed/mcp" 'mcp>=2.3,<3'; }
install_agent() { :; }

run_sdk() { "$installed/python/bin/python" "$here/sdk.py"; }
run_sdk_typescript() { node "$installed/typescript/sdk.mjs"; }
run_view() { "$installed/python/bin/python" "$here/view.py"; }
run_browser() { "$installed/python/bin/python" "$here/browser.py"; }
run_browser_typescript() { node "$installed/typescript/browser.mjs"; }
run_mcp() { "$installed/mcp/bin/python" "$here/mcp_tools.py" "$sandling"; }
run_agent() { python3 "$here/agent.py" "$sandling"; }

for suite in "${suites[@]}"; do "install_$suite"; done
start_server
# One after the other, because a desktop with Chromium occupies a core.
for suite in "${suites[@]}"; do
  echo "desktop: $suite"
  "run_$suite" || fail "the $suite suite failed"
done
nothing_is_left
stop_server
exit "$failed"
