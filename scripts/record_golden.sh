#!/usr/bin/env bash
# Records the golden files of the formats that outlive a version: what SANDLING stores today must be read for ever.
#
#   scripts/record_golden.sh SANDLING VERSION [WORK]
#
# Fills a home with one of everything, in virtual machines, and copies its store and manifests, without memory and disks,
# to tests/golden/VERSION of the crates that read them. Run it when a format gets a new version; golden files that exist
# are never changed. WORK keeps the home, e.g. for scripts/upgrade.sh. Templates are taken from SANDLING_TEMPLATES or, if
# that is not set, from the home. See docs/formats.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/example_home.sh"
binary=$(realpath "${1:?usage: record_golden.sh SANDLING VERSION [WORK]}")
version=${2:?usage: record_golden.sh SANDLING VERSION [WORK]}
engine=$root/crates/engine/tests/golden/$version
image=$root/crates/image/tests/golden/$version
vmm=$root/crates/vmm/tests/golden/$version
[ ! -e "$engine" ] || { echo "golden files of $version exist already" >&2; exit 1; }

# A short path: there are Unix sockets below it.
work=${3:-$(mktemp -d /tmp/golden.XXXXXX)}
server=
trap '[ -z "$server" ] || kill "$server"; [ -n "${3:-}" ] || rm -rf "$work"' EXIT
export SANDLING_HOME=$work/home
mkdir -p "$SANDLING_HOME" "$engine" "$image" "$vmm"
"$binary" template build base
serve "$binary"
fill
stop

# The store, and the key that its secrets are encrypted with.
{
  sqlite3 "$SANDLING_HOME/sandling.db" .dump
  echo "PRAGMA user_version=$(sqlite3 "$SANDLING_HOME/sandling.db" 'PRAGMA user_version');"
} >"$engine/store.sql"
base64 "$SANDLING_HOME/secrets.key" >"$engine/secrets.key.base64"
grep -v team_token "$work/ids" >"$engine/ids"

# Manifests: of a template, of its parts, of its bake, and of an export.
templates=${SANDLING_TEMPLATES:-$SANDLING_HOME/templates}
id=$(jq -r .image "$templates/names/base.json")
cp "$templates/names/base.json" "$image/name.json"
cp "$templates/images/$id/manifest.json" "$image/manifest.json"
for part in root kernel initrd; do
  cp "$templates/${part}s/$(jq -r ".$part.id" "$image/manifest.json")/part.json" "$image/$part.part.json"
done
bake=$(sqlite3 "$SANDLING_HOME/sandling.db" "SELECT detail ->> 'bake' FROM sandboxes LIMIT 1")
cp "$templates/images/$id/baked/$bake/baked.json" "$engine/baked.json"
printf '%s %s\n' "$bake" "$(stat --dereference --format=%s-%Y /usr/bin/qemu-system-x86_64)" >"$engine/baked.key"
python3 - "$work/export" "$engine/export.json" <<'PYTHON'
import os, struct, subprocess, sys
MAGIC = b"sandling-snapshot 1\n"
exported = os.open(sys.argv[1], os.O_RDONLY)
assert os.read(exported, len(MAGIC)) == MAGIC
stream = subprocess.Popen(["zstd", "--decompress", "--stdout"], stdin=exported, stdout=subprocess.PIPE)
(length,) = struct.unpack("<I", stream.stdout.read(4))
manifest = stream.stdout.read(length)
stream.kill()
with open(sys.argv[2], "wb") as out:
    out.write(manifest)
PYTHON

# What a new version needs to take over a machine that an old one started, and the first extents of a map of memory.
. "$work/ids"
jq '.cgroup.directories |= map("/sys/fs/cgroup/" + (split("/") | .[4] + "/" + last))' \
  "$SANDLING_HOME/sandboxes/$running/machine.json" >"$vmm/machine.json"
(cd "$SANDLING_HOME/sandboxes/$running" && find . -type f -o -type s | sort) >"$vmm/machine.files"
head -c 320 "$SANDLING_HOME/snapshots/$snapshot/map" | xxd -p -c 32 >"$vmm/map.hex"
chmod -R u+w "$engine" "$image" "$vmm"
echo "recorded $engine, $image and $vmm"
