"""Directories as tar archives, for copies of whole directories. Blocking, for the blocking and the async client."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import IO, Iterator, List, Optional, Tuple

from .dockerignore import DockerIgnore

#: Leaves nothing out.
EVERYTHING = DockerIgnore()
#: Permission bits that are accepted from a sandbox: no write access for others, no setuid.
_ALLOWED_MODE = 0o755


def pack(directory: str, archive: IO[bytes], ignore: DockerIgnore = EVERYTHING) -> None:
    """Writes everything below a directory to an archive, except what ``ignore`` names.

    Sockets, devices and pipes are left out.
    """

    def entry(info: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info if info.isreg() or info.isdir() or info.issym() or info.islnk() else None

    # Every tar can read GNU's format; some cannot read the newer one.
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(directory, arcname=".", recursive=False, filter=entry)
        for path, name in _below(directory, "", ignore):
            tar.add(path, arcname=f"./{name}", recursive=False, filter=entry)


def _below(directory: str, prefix: str, ignore: DockerIgnore) -> Iterator[Tuple[str, str]]:
    for child in sorted(os.listdir(directory)):
        path, name = os.path.join(directory, child), prefix + child
        is_ignored = ignore.ignores(name)
        if not is_ignored:
            yield path, name
        if os.path.isdir(path) and not os.path.islink(path) and (not is_ignored or ignore.has_exceptions):
            yield from _below(path, f"{name}/", ignore)


def unpack(archive: IO[bytes], directory: str) -> None:
    """Writes an archive of a sandbox to a directory. Its names are untrusted: nothing is written outside.

    :raises ValueError: a name leads out of the directory.
    """
    os.makedirs(directory, exist_ok=True)
    links: List[Tuple[List[str], str]] = []
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            parts = _parts(member.name)
            if member.isdir():
                _make_directories(directory, parts)
            elif member.isreg():
                content = tar.extractfile(member)
                if content is not None:
                    _write(directory, parts, content, member.mode)
            elif member.islnk():
                # A hard link to a file earlier in the archive.
                first = os.path.join(directory, *_parts(member.linkname))
                if os.path.isfile(first) and not os.path.islink(first):
                    with open(first, "rb") as content:
                        _write(directory, parts, content, member.mode)
            elif member.issym():
                links.append((parts, member.linkname))
    # Last, so that nothing is written through a link of the sandbox.
    for parts, target in links:
        _make_directories(directory, parts[:-1])
        path = os.path.join(directory, *parts)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)


def _parts(name: str) -> List[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise ValueError(f"the sandbox sent a name that leads out of the directory: {name!r}")
    return parts


def _make_directories(directory: str, parts: List[str]) -> None:
    path = directory
    for part in parts:
        path = os.path.join(path, part)
        if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
            raise ValueError(f"{path} is in the way: it is not a directory")
        if not os.path.isdir(path):
            os.mkdir(path)


def _write(directory: str, parts: List[str], content: IO[bytes], mode: int) -> None:
    if not parts:
        return
    _make_directories(directory, parts[:-1])
    path = os.path.join(directory, *parts)
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with open(unfinished, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 18)
        os.chmod(unfinished, mode & _ALLOWED_MODE | 0o600)
        os.replace(unfinished, path)
    except BaseException:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)
        raise
