#!/usr/bin/env bash
# Runs sandboxes from images and builds Dockerfiles: from Debian's docker-registry, which skopeo pushes to, and from files.
#
#   conformance/oci/sandboxes.sh SANDLING
#
# SANDLING is the path of the binary. Needs the Debian packages docker-registry, skopeo, umoci, buildah, busybox-static,
# mmdebstrap, perl and curl, and a template that was built before, as in conformance/server.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: sandboxes.sh SANDLING}")
for tool in docker-registry skopeo umoci buildah busybox mmdebstrap perl curl python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; install it with apt-get" >&2; exit 1; }
done
. "$here/../server.sh"
. "$here/registry_server.sh"

registry=
log=$here/../../target/images-conformance.log
finish() {
  local status=$?
  set +e
  [ -z "$registry" ] || kill "$registry"
  # `clean_up` reads the status of the last command.
  (exit "$status")
  clean_up "$log"
}
trap finish EXIT

start_registry "$run"

# The templates that images become belong to this run, and to its home: only those are evicted. They have the kernel of
# the other templates.
templates=${SANDLING_TEST_TEMPLATES:-${SANDLING_TEMPLATES:-${XDG_DATA_HOME:-$HOME/.local/share}/sandling/templates}}
install -d -m 700 "$run/home" "$run/home/templates"
cp -a "$templates/kernels" "$run/home/templates/"
export SANDLING_TEST_TEMPLATES=$run/home/templates
# Docker's configuration of the user who runs this must not matter.
export DOCKER_CONFIG=$run/docker
start_server --standbys 0 --registry-allow "localhost:$port"
PYTHONDONTWRITEBYTECODE=1 python3 "$here/sandboxes.py" "$sandling" "$run" "$port" || fail "sandboxes from images"
PYTHONDONTWRITEBYTECODE=1 python3 "$here/dockerfiles.py" "$sandling" "$run" "$port" || fail "Dockerfiles"
exit "$failed"
