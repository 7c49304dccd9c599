#!/usr/bin/env bash
# Tests E2B's public clients, unmodified, against a server with real virtual machines.
#
#   conformance/e2b/run.sh SANDLING [python] [typescript] [older] [older_code] [domain] [domain_more] [domain_typescript]
#     [desktop] [languages]
#
# The clients of `domain…` and `desktop` know nothing but `E2B_DOMAIN`: they use HTTPS and names below that domain. All
# others use the URLs of docs/e2b.md. Most of their tests are tests of `python` and `typescript` as well.
#
# SANDLING is the path of the binary; by default the suites up to `domain` run. `desktop` needs the template of that name,
# and `languages` first builds the template `r-java` for minutes. `conformance/server.sh` says which templates are used.
# PYTEST_ADDOPTS selects tests of the Python suites. With CONFORMANCE_FLEET=3, those of the suite `python` that
# `conformance/fleet/gaps/e2b.txt` lists must fail. CONFORMANCE_NEWEST=1 uses E2B's newest packages instead of the
# pinned ones. Exits with 0 only if all passed and nothing was left behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [SUITE...]}")
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(python typescript older older_code domain)

# Machines outlive the process that started them. A subreaper finds those that were forgotten.
if [ -z "${CONFORMANCE_SUBREAPER:-}" ]; then
  exec env CONFORMANCE_SUBREAPER=1 python3 "$here/../subreaper.py" "$0" "$sandling" "${suites[@]}"
fi

installed=${CARGO_TARGET_DIR:-$here/../../target}/conformance/e2b
newest=${CONFORMANCE_NEWEST:+newest-}
. "$here/../server.sh"
. "$here/../../scripts/python.sh"

install_pip() { # SUITE
  local venv=$installed/$newest$1 wanted
  mapfile -t wanted < <(sed "${newest:+s/^\(e2b.*\)==.*/\1/}" "$here/$1/requirements.txt")
  python_env "$venv" ${newest:+--upgrade} "${wanted[@]}"
  [ -z "$newest" ] || "$venv/bin/python" -c \
    'from importlib.metadata import distributions as d; print(*sorted(f"{p.name}=={p.version}" for p in d() if "e2b" in p.name), sep="\n")'
}
install_python() { install_pip python; }
install_older() { install_pip older; }
install_older_code() { install_pip older_code; }
install_desktop() { install_pip desktop; }

install_typescript() {
  local to=$installed/${newest}typescript wanted=()
  [ -z "$newest" ] || wanted=(e2b@latest @e2b/code-interpreter@latest @e2b/cli@latest)
  mkdir -p "$to"
  # Node finds packages relative to the test file, so the tests are copied next to the packages.
  rm -rf "$to/"*.mjs "$to/support"
  cp -r "$here/typescript/." "$to/"
  (cd "$to" && npm install --silent --no-audit --no-fund "${wanted[@]}" && fitting_node)
  [ -z "$newest" ] || (cd "$to" && npm ls --depth=0 e2b @e2b/code-interpreter @e2b/cli)
}

# The client needs a newer Node than some systems have. In that case npm installs one.
fitting_node() {
  if node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 18) ? 0 : 1)'; then
    command -v node >node.path
  else
    npm install --silent --no-audit --no-fund --no-save node@22
    echo "$PWD/node_modules/node/bin/node" >node.path
  fi
}

run_pytest() { # SUITE
  (cd "$here/$1" && PYTHONDONTWRITEBYTECODE=1 timeout 900 "$installed/$newest$1/bin/python" -m pytest --quiet)
}
run_python() (
  if [ -n "${CONFORMANCE_FLEET:-}" ]; then
    export PYTHONPATH=$here/../fleet SANDLING_GAPS=$here/../fleet/gaps/e2b.txt
    export PYTEST_ADDOPTS="-p known_gaps ${PYTEST_ADDOPTS:-}"
  fi
  run_pytest python
)
run_older() { run_pytest older; }
run_older_code() { run_pytest older_code; }
run_languages() (
  "$sandling" template build r-java --packages r-base-core,default-jdk-headless --memory 1g
  cd "$here/languages"
  PYTHONDONTWRITEBYTECODE=1 timeout 1800 "$installed/${newest}python/bin/python" -m pytest --quiet
)

run_typescript() {
  (cd "$installed/${newest}typescript" && timeout 900 "$(cat node.path)" --test --test-reporter=spec)
}

# Leaves E2B's clients with the domain and the certificates only.
by_domain() {
  unset E2B_API_URL E2B_SANDBOX_URL E2B_VOLUME_API_URL
  export E2B_DOMAIN=$domain SSL_CERT_FILE=$SANDLING_HOME/tls/trust.pem NODE_EXTRA_CA_CERTS=$SANDLING_HOME/tls/ca.pem
  export NO_PROXY=localhost,.localhost,127.0.0.1
}
pytest_by_domain() ( # PATH…
  by_domain
  cd "$here/domain"
  PYTHONDONTWRITEBYTECODE=1 timeout 900 "$installed/${newest}python/bin/python" -m pytest --quiet "$@"
)
run_domain() { pytest_by_domain . ../python/test_{sandboxes,commands}.py; }
run_domain_more() { pytest_by_domain . ../python/test_{files,code,async,volumes}.py; }
run_desktop() (
  by_domain
  run_pytest desktop
)
run_domain_typescript() (
  by_domain
  cd "$installed/${newest}typescript"
  # Node asks the system's resolver, and not every system resolves names below localhost.
  timeout 900 "$(cat node.path)" --import ./support/localhost.mjs --test --test-reporter=spec \
    sandboxes.test.mjs commands.test.mjs code.test.mjs volumes.test.mjs
)

api() { # METHOD PATH [JSON]
  curl --silent --show-error --fail-with-body --request "$1" "$SANDLING_API$2" \
    --header "Authorization: Bearer $SANDLING_TOKEN" ${3:+--header "Content-Type: application/json" --data "$3"}
}

trap 'clean_up "$installed/server.log"' EXIT

mkdir -p "$installed"
installing=()
for packages in $(printf '%s\n' "${suites[@]}" | sed -E 's/^(domain|domain_more|languages)$/python/; s/^domain_//' | sort -u); do
  "install_$packages" &
  installing+=($!)
done
for pid in "${installing[@]}"; do
  wait "$pid"
done
# Test hosts may have a mirror of the registries at reserved addresses.
export SANDLING_NETWORK_OPEN=192.0.2.0/24,198.51.100.0/24,203.0.113.0/24
start_server --tls self
domain=$(sed -n 's|.*https://api\.\(sandling\.localhost:[0-9]*\),.*|\1|p' "$run/server.log")
[ -n "$domain" ] || { fail "the server did not say its domain"; exit 1; }
# Some clients need a key of the form `e2b_` plus hexadecimal digits.
E2B_API_KEY=e2b_$(printf %s "$SANDLING_TOKEN" | od -An -v -tx1 | tr -d ' \n')
export E2B_API_KEY E2B_API_URL=$SANDLING_API E2B_SANDBOX_URL=$SANDLING_API E2B_VOLUME_API_URL=$SANDLING_API
# The tests create many sandboxes per minute. Each node of a fleet has limits of its own and gets one of these requests.
for _ in $(seq "${CONFORMANCE_FLEET:-1}"); do
  api PUT /v1/workspaces/default/quota '{"sandboxes": null, "cpu": null, "memory_mb": null, "disk_mb": null,
    "creates_per_minute": null, "requests_per_second": null, "open_requests": null}' >/dev/null
done
run_suites
left=$(api GET /v1/sandboxes | python3 -c 'import json, sys; print(*(sandbox["id"] for sandbox in json.load(sys.stdin)))')
[ -z "$left" ] || fail "sandboxes were left behind:" $left
stop_server
exit "$failed"
