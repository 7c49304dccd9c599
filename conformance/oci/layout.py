"""Writes an OCI layout with small images: `many` (amd64 and arm64), `amd64` and `arm64`.

    layout.py FOLDER
"""

import gzip
import hashlib
import io
import json
import pathlib
import random
import sys
import tarfile

folder = pathlib.Path(sys.argv[1])
blobs = folder / "blobs" / "sha256"
blobs.mkdir(parents=True)

IMAGE = "application/vnd.oci.image."


def store(kind, content, **more):
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": IMAGE + kind, "digest": f"sha256:{digest}", "size": len(content), **more}


def document(kind, content, **more):
    return store(kind, json.dumps(content).encode(), **more)


def layer(name, size):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = size
        archive.addfile(entry, io.BytesIO(random.Random(name).randbytes(size)))
    return buffer.getvalue()


def image(architecture):
    tars = [layer(f"{architecture}-{number}", size) for number, size in enumerate([100, 70_000, 3_000_000, 1])]
    # The same layer may occur twice.
    tars.append(tars[0])
    config = {
        "os": "linux",
        "architecture": architecture,
        "config": {"Cmd": ["/bin/true"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": IMAGE + "manifest.v1+json",
        "config": document("config.v1+json", config),
        "layers": [store("layer.v1.tar+gzip", gzip.compress(tar, mtime=0)) for tar in tars],
    }
    platform = {"os": "linux", "architecture": architecture}
    return document("manifest.v1+json", manifest, platform=platform)


def named(descriptor, name):
    return {**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}}


images = [image("arm64"), image("amd64")]
many = document("index.v1+json", {"schemaVersion": 2, "mediaType": IMAGE + "index.v1+json", "manifests": images})
names = [named(many, "many"), named(images[0], "arm64"), named(images[1], "amd64")]
(folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": names}))
(folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
