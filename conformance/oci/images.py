"""Makes OCI layouts: ordinary images, and unusual ones whose layers are written entry by entry."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tarfile

TIME = 1_600_000_000


def entry(name, kind=tarfile.REGTYPE, content=b"", mode=0o644, mtime=TIME, **fields):
    """A tar entry and its content. Names are bytes, so that they need not be UTF-8."""
    info = tarfile.TarInfo(os.fsdecode(name))
    info.type, info.size, info.mode, info.mtime = kind, len(content), mode, mtime
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def directory(name, mode=0o755, **fields):
    return entry(name, tarfile.DIRTYPE, mode=mode, **fields)


def symlink(name, target, **fields):
    return entry(name, tarfile.SYMTYPE, mode=0o777, linkname=os.fsdecode(target), **fields)


def hardlink(name, target, **fields):
    return entry(name, tarfile.LNKTYPE, linkname=os.fsdecode(target), **fields)


def xattrs(**values):
    """PAX records for extended attributes. tarfile writes them as UTF-8, and surrogates stand for other bytes."""
    return {"SCHILY.xattr." + name.replace("__", "."): value.decode("utf-8", "surrogateescape") for name, value in values.items()}


def layer(*entries, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, encoding="utf-8", errors="surrogateescape") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def tar_of(tree, *options):
    """A layer that GNU tar makes of a directory."""
    return subprocess.run(["tar", "-C", tree, *options, "-cf", "-", "."], check=True, stdout=subprocess.PIPE).stdout


def compress(data, how):
    match how:
        case "gzip":
            return gzip.compress(data, 6, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"
        case "zstd":
            packed = subprocess.run(["zstd", "-q", "-3"], input=data, check=True, stdout=subprocess.PIPE).stdout
            return packed, "application/vnd.oci.image.layer.v1.tar+zstd"
        case "plain":
            return data, "application/vnd.oci.image.layer.v1.tar"


def write_layout(path, layers, how, config=None):
    """An OCI layout with one image, tagged `test`."""
    path = pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)
    blobs = path / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data, media_type, **more):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    def document(value, media_type, **more):
        return blob(json.dumps(value).encode(), media_type, **more)

    descriptors = [blob(*compress(data, how)) for data in layers]
    config = document(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sh"]} if config is None else config,
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest() for data in layers]},
            # Without it, podman cannot build on top of the image.
            "history": [{"created_by": "test"} for _ in layers],
        },
        "application/vnd.oci.image.config.v1+json",
    )
    manifest = document(
        {"schemaVersion": 2, "config": config, "layers": descriptors},
        "application/vnd.oci.image.manifest.v1+json",
        annotations={"org.opencontainers.image.ref.name": "test"},
        platform={"os": "linux", "architecture": "amd64"},
    )
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def capability(bits):
    """A file capability, effective: binary, with bytes that are no UTF-8 and may be newlines."""
    return struct.pack("<IIIII", 0x02000001, bits & 0xFFFFFFFF, 0, bits >> 32, 0)
