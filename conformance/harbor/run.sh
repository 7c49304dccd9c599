#!/usr/bin/env bash
# Runs the evaluation harness `harbor` from PyPI, unmodified, with its oracle agent: five tasks with `docker_image=` from
# Debian's docker-registry on loopback. Every task must end with the reward 1.0.
#
#   conformance/harbor/run.sh SANDLING [ENVIRONMENT...]
#
# SANDLING is the path of the binary. An environment is `e2b`, which is Harbor's own, or `sandling`, which is the SDK's and
# also gets a task with a Dockerfile; by default both run. The second runs the example of docs/frameworks.md. Needs Python
# 3.12 or newer, which PYTHON may name, the Debian packages docker-registry, skopeo, busybox-static, mmdebstrap and perl, and
# a template that was built before, as in conformance/server.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING [ENVIRONMENT...]}")
shift
environments=("$@")
[ $# -gt 0 ] || environments=(e2b sandling)
for tool in docker-registry skopeo busybox mmdebstrap perl; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; install it with apt-get" >&2; exit 1; }
done
for python in "${PYTHON:-python3}" python3.14 python3.13 python3.12 none; do
  ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || break
done
[ "$python" != none ] || { echo "harbor needs Python 3.12 or newer, and there is none" >&2; exit 1; }
venv=${CARGO_TARGET_DIR:-$here/../../target}/conformance/harbor
mkdir -p "$venv"
[ -x "$venv/bin/harbor" ] ||
  { "$python" -m venv "$venv" && "$venv/bin/python" -m pip install --quiet 'harbor[e2b]==0.24.0'; }

. "$here/../server.sh"
. "$here/../oci/registry_server.sh"
registry=
finish() {
  local status=$?
  set +e
  [ -z "$registry" ] || kill "$registry"
  # `clean_up` reads the status of the last command.
  (exit "$status")
  clean_up "$venv/server.log"
}
trap finish EXIT

start_registry "$run"
# The templates that the images become belong to this run. They have the kernel of the other templates.
templates=${SANDLING_TEST_TEMPLATES:-${SANDLING_TEMPLATES:-${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates}}
install -d -m 700 "$run/home" "$run/home/templates"
cp -a "$templates/kernels" "$run/home/templates/"
export SANDLING_TEST_TEMPLATES=$run/home/templates DOCKER_CONFIG=$run/docker
start_server --standbys 0
"$sandling" registry login "localhost:$port" --username me <<<pw >/dev/null

export PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$here/../oci python3 "$here/tasks.py" "$sandling" "$run" "$port"
E2B_API_KEY=e2b_$(printf %s "$SANDLING_TOKEN" | od -An -v -tx1 | tr -d ' \n')
export E2B_API_KEY E2B_API_URL=$SANDLING_API E2B_SANDBOX_URL=$SANDLING_API
# It would ask the internet for the prices of models.
export LITELLM_LOCAL_MODEL_COST_MAP=True HARBOR_TELEMETRY=0

run_e2b() {
  (cd "$run" && timeout 3000 "$venv/bin/harbor" run --yes --quiet --path tasks --agent oracle --env e2b \
    --n-concurrent 2 --job-name e2b)
}

run_sandling() {
  local example
  mv "$run/built/dockerfile" "$run/tasks/"
  example=$(sed -n '/^### Harbor$/,/^### /p' "$here/../../docs/frameworks.md" | sed -n '/^```sh$/,/^```$/{/^```/d;p}')
  (cd "$run" && PATH=$venv/bin:$PATH PYTHONPATH=$here/../../sdk/python/src timeout 3000 bash -e <<<"$example") &&
    mv "$run/jobs/example" "$run/jobs/sandling"
}

for environment in "${environments[@]}"; do
  "run_$environment" || fail "harbor with $environment"
  python3 "$here/rewards.py" "$run/jobs/$environment" "$run/tasks" || fail "a task did not get the reward 1.0"
done
nothing_is_left
stop_server
exit "$failed"
