#!/usr/bin/env bash
# Pushes images to Debian's docker-registry with skopeo, pulls them with our client, and compares.
#
#   conformance/oci/registry.sh [PULL]
#
# PULL is the example `pull` of crates/oci, which is built if it is not given. Needs the Debian packages docker-registry,
# skopeo, zstd and perl.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
for tool in docker-registry skopeo zstd perl python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install docker-registry skopeo zstd perl" >&2; exit 1; }
done
if [ $# = 0 ]; then
  (cd "$here/../.." && cargo build --quiet --package sandling-oci --example pull)
  set -- "${CARGO_TARGET_DIR:-$here/../../target}/debug/examples/pull"
fi
pull=$(realpath "$1")

. "$here/registry_server.sh"
work=$(mktemp -d)
registry=
finish() {
  [ -z "$registry" ] || kill "$registry" || true
  rm -rf "$work"
}
trap finish EXIT

start_registry "$work"
host=localhost:$port

skopeo login --authfile "$work/auth.json" --username me --password pw --tls-verify=false "$host" >/dev/null
python3 "$here/layout.py" "$work/layout"
push() {
  local from=$1 to=$2
  shift 2
  skopeo --insecure-policy copy --quiet --dest-authfile "$work/auth.json" --dest-tls-verify=false "$@" \
    "oci:$work/layout:$from" "docker://$host/$to"
}
# The first push, because skopeo reuses layers that the registry has and then does not compress them again.
push amd64 team/x:zstd --dest-compress-format zstd
push amd64 team/x:gzip
push amd64 team/x:docker --format v2s2
push many team/x:many --all
push many team/x:list --all --format v2s2
push arm64 team/x:arm64
push amd64 library/alpine:3

failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

# Pulls, and compares the digests of all uncompressed layers with those that the configuration lists.
check() {
  local name=$1 into=$work/pulled.$RANDOM
  shift
  "$pull" --config "$work/auth.json" "$@" "$into" >"$work/digest" || { fail "$name"; return; }
  python3 - "$into" <<'END' || fail "$name: the layers differ"
import hashlib, json, pathlib, subprocess, sys

folder = pathlib.Path(sys.argv[1])
layers = json.loads((folder / "manifest.json").read_text())["layers"]
expected = json.loads((folder / "config.json").read_text())["rootfs"]["diff_ids"]
found = []
for layer in layers:
    path = folder / layer["digest"].removeprefix("sha256:")
    tool = "zstd" if layer["mediaType"].endswith("zstd") else "gzip"
    content = subprocess.run([tool, "-dc"], stdin=path.open("rb"), stdout=subprocess.PIPE, check=True).stdout
    found.append("sha256:" + hashlib.sha256(content).hexdigest())
assert found == expected and len(found) == 5, (found, expected)
END
  last=$into
  echo "ok: $name"
}

for tag in gzip docker zstd many list; do
  check "$tag" "$host/team/x:$tag"
  case $tag in
    zstd) grep -q 'tar+zstd' "$last/manifest.json" || fail "the layers of zstd are not compressed with zstd" ;;
    docker | list) grep -q 'vnd.docker.distribution.manifest.v2' "$last/manifest.json" || fail "$tag is not Docker's format" ;;
  esac
done
check "an image by its digest" "$host/team/x@$(sha256sum "$last/manifest.json" | sed 's/^/sha256:/; s/ .*//')"
theirs=$(skopeo inspect --raw --authfile "$work/auth.json" --tls-verify=false "docker://$host/team/x:gzip" | sha256sum)
check "gzip again" "$host/team/x:gzip"
[ "sha256:${theirs%% *}" = "$(cat "$work/digest")" ] || fail "skopeo sees another digest than we do"
check "Docker Hub's short name from a mirror" --mirror "docker.io=$host" alpine:3

# Pulls, and expects this error.
refuse() {
  local name=$1 expected=$2 into=$work/refused.$RANDOM
  shift 2
  if "$pull" "$@" "$into" >/dev/null 2>"$work/error"; then
    fail "$name: it was not refused"
  elif ! grep -qF -- "$expected" "$work/error" || [ "$(wc -l <"$work/error")" != 1 ]; then
    fail "$name: $(cat "$work/error")"
  elif [ -n "$(find "$into" -type f 2>/dev/null)" ]; then
    fail "$name: files remain"
  else
    echo "ok: $name"
  fi
}

refuse "no credentials" "run \`sandling registry login $host\`" "$host/team/x:gzip"
echo "{\"auths\": {\"$host\": {\"auth\": \"$(printf me:wrong | base64)\"}}}" > "$work/wrong.json"
refuse "a wrong password" "refuses the stored credentials" --config "$work/wrong.json" "$host/team/x:gzip"
refuse "a missing tag" "has no image $host/team/x:missing" --config "$work/auth.json" "$host/team/x:missing"
refuse "another platform" "is not made for linux/amd64; there is linux/arm64" --config "$work/auth.json" "$host/team/x:arm64"

# Damage the largest layer in the registry's storage.
largest='import json, sys; print(max(json.load(open(sys.argv[1]))["layers"], key=lambda layer: layer["size"])["digest"])'
digest=$(python3 -c "$largest" "$last/manifest.json")
printf x | dd of="$work/registry/docker/registry/v2/blobs/sha256/${digest:7:2}/${digest:7}/data" bs=1 seek=1000 \
  conv=notrunc status=none
refuse "a damaged layer" "for $digest" --config "$work/auth.json" "$host/team/x:gzip"
exit "$failed"
