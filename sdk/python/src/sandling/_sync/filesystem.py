# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""The files of a sandbox. A relative path starts in the working directory. Contents are never converted."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, List, Optional, Tuple, Union

from ..archives import pack, unpack
from ..errors import BadRequestError, ConnectionError, NotFoundError, RequestTimeout, SandlingError, ServerError
from ..models import FileChange, FileInfo
from .colour import in_thread

if TYPE_CHECKING:
    from .sandbox import Sandbox

Local = Union[str, "os.PathLike[str]"]
BLOCK = 1 << 18


class Unfinished(SandlingError):
    """The transfer of a file stopped before its end."""


class SandboxFilesystem:
    """The files of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str, *, offset: int = 0, length: Optional[int] = None) -> bytes:
        """The bytes of a file: all of them, or ``length`` bytes from ``offset``."""
        headers: Dict[str, str] = {}
        if length == 0:
            self.stat(path)
            return b""
        if offset or length is not None:
            headers["range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        answer = self._sandbox._fetch("GET", "/fs", params={"path": path}, headers=headers, timeout=None)
        return answer.content

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return (self.read(path)).decode(encoding)

    def stream(self, path: str) -> Iterator[bytes]:
        """The bytes of a file in pieces, for files that do not fit into memory."""
        for block in self._blocks_of("/fs", path):
            yield block

    def _blocks_of(self, route: str, path: str) -> Iterator[bytes]:
        with self._sandbox._stream("GET", route, params={"path": path}) as answer:
            recording = answer.extensions.get("recording")
            for block in answer.iter_bytes(BLOCK):
                if recording is not None:
                    recording.passed(recording.record.output, block)
                yield block

    def _begin(self, path: str, most: int, seconds: float) -> bytes:
        """The beginning of a file: all of it, or a little more than ``most`` bytes.

        :raises Unfinished: its end does not arrive in time, or not at all.
        """
        until = time.monotonic() + seconds
        data = bytearray()
        is_there = False
        try:
            with self._sandbox._stream("GET", "/fs", params={"path": path}, silence=seconds) as answer:
                is_there = True
                for block in answer.iter_bytes(BLOCK):
                    data += block
                    if len(data) > most:
                        break
                    if time.monotonic() > until:
                        raise RequestTimeout("the file is still being read")
                recording = answer.extensions.get("recording")
                if recording is not None:
                    recording.answered(answer.headers.get("content-type", ""), bytes(data))
        except ConnectionError as error:
            if not is_there and not isinstance(error, RequestTimeout):
                raise
            raise Unfinished(f"{path} could not be read to its end") from error
        return bytes(data)

    def write(
        self,
        path: str,
        content: Union[bytes, str],
        *,
        append: bool = False,
        mode: Optional[str] = None,
        user: Optional[str] = None,
    ) -> Dict[str, Any]:
        """Writes a file and creates its parent directories. ``mode`` is octal, such as ``0755``.

        Without ``append``, a write is atomic: a reader sees the old file or the new one.
        """
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, (bytes, bytearray, memoryview)):
            # ``None`` would become an empty file.
            raise TypeError(f"a file's content is str or bytes, not {type(content).__name__}; upload() copies a file")
        return self._put(path, bytes(content), append=append, mode=mode, user=user)

    def append(self, path: str, content: Union[bytes, str]) -> Dict[str, Any]:
        return self.write(path, content, append=True)

    def upload(self, local_path: Local, remote_path: str, *, mode: Optional[str] = None) -> Dict[str, Any]:
        """Copies a local file of any size, or the contents of a directory, into the sandbox.

        A directory is copied with its links and permissions; files that are already there stay or are replaced.
        """
        if os.path.isdir(local_path):
            return self._upload_directory(os.fspath(local_path), remote_path)
        with open(local_path, "rb") as file:
            return self._put(remote_path, blocks_of(file), append=False, mode=mode, user=None)

    def download(self, remote_path: str, local_path: Local) -> None:
        """Copies a file of any size, or the contents of a directory, out of the sandbox.

        A complete copy replaces an existing local file.
        """
        try:
            self._download_file(remote_path, local_path)
        except BadRequestError as error:
            if error.code != "is_a_directory":
                raise
            self._download_directory(remote_path, os.fspath(local_path))

    def _upload_directory(self, local_path: str, remote_path: str) -> Dict[str, Any]:
        with tempfile.TemporaryFile() as archive:
            in_thread(lambda: pack(local_path, archive))
            archive.seek(0)
            headers = {"content-type": "application/x-tar"}
            more: Dict[str, Any] = {"params": {"path": remote_path}, "headers": headers, "timeout": None}
            answer = self._sandbox._fetch("PUT", "/fs/tar", content=blocks_of(archive), **more)
        written: Dict[str, Any] = answer.json()
        return written

    def _download_directory(self, remote_path: str, local_path: str) -> None:
        with tempfile.TemporaryFile() as archive:
            for block in self._blocks_of("/fs/tar", remote_path):
                archive.write(block)
            archive.seek(0)
            in_thread(lambda: unpack(archive, local_path))

    def _download_file(self, remote_path: str, local_path: Local) -> None:
        unfinished = f"{os.fspath(local_path)}.{os.getpid()}.part"
        try:
            with open(unfinished, "wb") as file:
                for block in self.stream(remote_path):
                    file.write(block)
            os.replace(unfinished, local_path)
        except BaseException:
            if os.path.exists(unfinished):
                os.unlink(unfinished)
            raise

    def listdir(self, path: str = "/", *, depth: int = 1) -> List[FileInfo]:
        """The entries of a directory; with ``depth``, also that many levels below."""
        data = self._sandbox._request("GET", "/fs/dir", params={"path": path, "depth": depth})
        return [FileInfo.from_wire(entry) for entry in data["entries"]]

    def list(self, path: str = "/", *, depth: int = 1) -> List[FileInfo]:
        return self.listdir(path, depth=depth)

    def stat(self, path: str) -> FileInfo:
        """
        :raises NotFoundError: the path does not exist.
        """
        return FileInfo.from_wire(self._sandbox._request("GET", "/fs/stat", params={"path": path}))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFoundError as error:
            # A missing sandbox must not look like a missing file.
            if error.code == "sandbox_ended" or error.message == "sandbox not found":
                raise
            return False
        return True

    def walk(self, path: str = "/") -> Iterator[Tuple[str, List[FileInfo], List[FileInfo]]]:
        """Like :func:`os.walk`, top-down. Directories that you remove from the list are skipped. Links are files."""
        entries = self.listdir(path)
        directories = [entry for entry in entries if entry.is_dir]
        yield path, directories, [entry for entry in entries if not entry.is_dir]
        for directory in directories:
            for found in self.walk(directory.path):
                yield found

    def mkdir(self, path: str, *, parents: bool = True, mode: Optional[str] = None) -> None:
        """Creates a directory. With ``parents`` it also creates missing parents, and the directory may exist."""
        body = {"path": path, "parents": parents, **({"mode": mode} if mode else {})}
        self._sandbox._request("POST", "/fs/mkdir", body=body)

    def remove(self, path: str, *, recursive: bool = True) -> None:
        """Removes a file, or a directory with everything in it."""
        params = {"path": path, "recursive": "true" if recursive else "false"}
        self._sandbox._request("DELETE", "/fs", params=params)

    def move(self, source: str, target: str) -> None:
        self._sandbox._request("POST", "/fs/move", body={"from": source, "to": target})

    def chmod(self, path: str, mode: str) -> None:
        """Sets the permission bits, in octal."""
        self._sandbox._request("POST", "/fs/chmod", body={"path": path, "mode": mode})

    def watch(self, path: str, *, recursive: bool = False) -> Iterator[FileChange]:
        """The changes under a path, as they happen."""
        params = {"path": path, "recursive": "true" if recursive else "false"}
        for event in self._sandbox._events("GET", "/fs/watch", params=params):
            data = event.json()
            if event.name == "error":
                raise ServerError(data["error"], code=data.get("code"))
            yield FileChange(data["path"], data["kind"])

    def _put(
        self, path: str, content: Any, *, append: bool, mode: Optional[str], user: Optional[str]
    ) -> Dict[str, Any]:
        wanted = {"path": path, "write": "append" if append else None, "mode": mode, "user": user}
        params = {name: value for name, value in wanted.items() if value is not None}
        headers = {"content-type": "application/octet-stream"}
        answer = self._sandbox._fetch("PUT", "/fs", content=content, params=params, headers=headers, timeout=None)
        written: Dict[str, Any] = answer.json()
        return written


def blocks_of(file: BinaryIO) -> Iterator[bytes]:
    while True:
        block = in_thread(lambda: file.read(BLOCK))
        if not block:
            return
        yield block
