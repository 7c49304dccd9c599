"""The verbs of files. Importing this module adds them to the others."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from verbs import each, first, settle, verb

#: A directory to copy.
TREE = {"ü/deep.txt": "deep\n", "run.sh": "#!/bin/sh\necho ran\n", "empty": "", f"{'long' * 30}/file": "1"}


@verb("files.write")
async def write(_: Any, sandbox: Any, path: str, text: Any = None, **more: Any) -> Any:
    content = base64.b64decode(more.pop("base64")) if text is None else text
    return await settle(sandbox.filesystem.write(path, content, **more))


@verb("files.read")
async def read(_: Any, sandbox: Any, **arguments: Any) -> Any:
    return {"base64": base64.b64encode(await settle(sandbox.files.read(**arguments))).decode()}


@verb("files.read_text")
async def read_text(_: Any, sandbox: Any, path: str) -> Any:
    return {"text": await settle(sandbox.files.read_text(path))}


@verb("files.exists")
async def exists(_: Any, sandbox: Any, path: str) -> Any:
    return {"exists": await settle(sandbox.files.exists(path))}


def _digest(data: bytes) -> Any:
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@verb("files.upload")
async def upload(_: Any, sandbox: Any, path: str, bytes: int) -> Any:
    data = hashlib.shake_256(b"conformance").digest(bytes)
    with tempfile.TemporaryDirectory() as scratch:
        local = Path(scratch) / "file"
        local.write_bytes(data)
        await settle(sandbox.files.upload(local, path))
    return _digest(data)


@verb("files.download")
async def download(_: Any, sandbox: Any, path: str) -> Any:
    with tempfile.TemporaryDirectory() as scratch:
        local = Path(scratch) / "file"
        try:
            await settle(sandbox.files.download(path, local))
        except Exception:
            assert not list(Path(scratch).iterdir()), "half a file was left"
            raise
        return _digest(local.read_bytes())


@verb("files.upload_tree")
async def upload_tree(_: Any, sandbox: Any, path: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        for name, text in TREE.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(text)
        (top / "run.sh").chmod(0o755)
        (top / "link").symlink_to("run.sh")
        await settle(sandbox.files.upload(top, path))


@verb("files.download_tree")
async def download_tree(_: Any, sandbox: Any, path: str) -> Any:
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch) / "new"
        await settle(sandbox.files.download(path, top))
        found = [entry for entry in top.rglob("*") if entry.is_symlink() or entry.is_file()]
        told = {
            str(entry.relative_to(top)): f"-> {os.readlink(entry)}" if entry.is_symlink() else entry.read_text()
            for entry in found
        }
        assert os.access(top / "run.sh", os.X_OK)
        return told


@verb("files.stream")
async def stream_file(_: Any, sandbox: Any, path: str) -> Any:
    return _digest(b"".join(await each(sandbox.files.stream(path))))


@verb("files.walk")
async def walk(_: Any, sandbox: Any, path: str) -> Any:
    found = await each(sandbox.files.walk(path))
    return [[top, [item.name for item in inner], [item.name for item in files]] for top, inner, files in found]


@verb("files.watch")
async def watch(_: Any, sandbox: Any, path: str, then: str) -> Any:
    # Repeats the change, because the start of the watch is not reported.
    job = await settle(sandbox.start(f"for i in $(seq 100); do rm -f {path}/*; {then}; sleep 0.2; done"))
    change = await first(sandbox.files.watch(path), lambda change: change.kind == "created")
    await settle(job.kill())
    return {"path": change.path, "kind": change.kind}
