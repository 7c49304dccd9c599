#!/usr/bin/env bash
# Checks that processes of both SDKs that need a local server at the same moment start one and share it.
#
#   sdk/conformance/local.sh DIRECTORY SANDLING
#
# DIRECTORY is the one that install.sh created.
set -euo pipefail

installed=$(cd "${1:?usage: local.sh DIRECTORY SANDLING}" && pwd)
SANDLING_BINARY=$(realpath "${2:?usage: local.sh DIRECTORY SANDLING}")
SANDLING_HOME=$(mktemp -d "${TMPDIR:-/tmp}/local.XXXXXX")
export SANDLING_BINARY SANDLING_HOME
unset SANDLING_API SANDLING_TOKEN

# The binary is next to it, as installed.
python() { env --unset=SANDLING_BINARY "$installed/python/bin/python" -c "$1"; }
cleanup() {
  python 'from sandling import local; local.stop()'
  rm -rf "$SANDLING_HOME"
}
trap cleanup EXIT

node_code='import("sandling").then(async ({ Client }) => {
  const client = new Client();
  console.log(await client.apiUrl(), (await client.me()).workspace);
  client.close();
})'
for number in 1 2 3; do
  python 'from sandling import Client; client = Client(); print(client.api_url(), client.me()["workspace"])' \
    >"$SANDLING_HOME/python.$number.out" &
  (cd "$installed/typescript" && node --eval "$node_code") >"$SANDLING_HOME/node.$number.out" &
done
wait
answers=$(cat "$SANDLING_HOME"/*.out | sort | uniq -c)
echo "local server: $answers"
[[ $answers =~ ^\ *6\ http://127\.0\.0\.1:[0-9]+\ default$ ]]
