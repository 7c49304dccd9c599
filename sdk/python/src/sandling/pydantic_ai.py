"""A sandbox as the workspace of a Pydantic AI agent: ``pip install "sandling[pydantic-ai]"``.

A run gets the workspace, and its tools use ``ctx.workspace``::

    from sandling.pydantic_ai import SandlingWorkspaceBackend

    workspace = SandlingWorkspaceBackend(template="agent", network={"allow": ["pypi"]})
    result = await agent.run("Fix the bug", workspace=workspace)
    await (await workspace.sandbox()).close()

The first use creates the sandbox. ``result.workspace.ref`` names it, and ``SandlingWorkspaceBackend(ref=ref)`` attaches
to it in another process. The end of a run does not end the sandbox: close it, or its TTL ends it.
``SandboxTools(sandbox).pydantic_ai()`` in :mod:`sandling.tools` needs no workspace: it gives any agent tools.
"""

from __future__ import annotations

import asyncio
import posixpath
from contextlib import contextmanager
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Union

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

from ._async.client import AsyncClient
from ._async.sandbox import AsyncSandbox
from .errors import NotFoundError, SandboxTimeout, SandlingError
from .models import FileInfo
from .options import DEFAULT_TEMPLATE

#: What a shell exits with if there is no such program.
NOT_FOUND = 127
#: The most output of a command, in bytes.
MOST_OUTPUT = 64 * 1024 * 1024
#: A sandbox ends after this time, even if nobody closes it.
TTL_SECONDS = 24 * 3600
#: The errors of Python for what can go wrong with a file.
FILE_ERRORS = {
    "already_exists": FileExistsError,
    "is_a_directory": IsADirectoryError,
    "not_a_directory": NotADirectoryError,
    "not_found": FileNotFoundError,
    "permission_denied": PermissionError,
}


class SandlingWorkspaceBackend:
    """One sandbox: the one that ``ref`` names, or a new one with the ``options`` of ``Sandbox.create``."""

    def __init__(
        self,
        template: str = DEFAULT_TEMPLATE,
        *,
        ref: Optional[WorkspaceRef] = None,
        client: Optional[AsyncClient] = None,
        **options: Any,
    ) -> None:
        if ref is not None and ref.provider != "sandling":
            raise ValueError(f"the workspace {ref.id} is one of {ref.provider}, not of sandling")
        self._template = template
        self._options = {"ttl_seconds": TTL_SECONDS, **options}
        self._client = client
        self._ref = ref
        self._opening: Optional[asyncio.Task[AsyncSandbox]] = None

    @property
    def ref(self) -> Optional[WorkspaceRef]:
        return self._ref

    async def sandbox(self) -> AsyncSandbox:
        """The sandbox itself: fork it, rewind it or change its network. The first call creates it or attaches to it."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._open())
        # A create that was cancelled must not leave a sandbox that nobody knows.
        return await asyncio.shield(self._opening)

    async def _open(self) -> AsyncSandbox:
        if self._ref is not None:
            with _unavailable():
                return await AsyncSandbox.get(self._ref.id, client=self._client)
        made = await AsyncSandbox.create(self._template, client=self._client, **self._options)
        self._ref = WorkspaceRef(provider="sandling", id=made.id)
        return made

    async def working_dir(self) -> str:
        return str((await self.sandbox()).workdir)

    async def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        shell: bool = False,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, and a list of arguments shell=False")
        validate_timeout(timeout)
        sandbox = await self.sandbox()
        try:
            with _unavailable():
                ran = await sandbox.exec(command, timeout, env=env, output_limit=MOST_OUTPUT)
        except SandboxTimeout as error:
            raise WorkspaceTimeoutError(str(error), stdout=error.stdout, stderr=error.stderr) from error
        except SandlingError as error:
            if error.code != "cannot_start":
                raise
            return CommandResult(exit_code=NOT_FOUND, stdout="", stderr=error.message)
        if ran.reason == "output_limit":
            why = f"the command printed more than {MOST_OUTPUT} bytes"
            raise WorkspaceOutputLimitError(why, limit=MOST_OUTPUT, stdout=ran.stdout, stderr=ran.stderr)
        return CommandResult(exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr)

    async def read_bytes(self, path: str) -> bytes:
        files = (await self.sandbox()).filesystem
        with _of_file(path):
            content = await files.read(path)
            if not content and (await files.stat(path)).mode == "o":
                raise OSError(f"{path} is not a regular file")
            return content

    async def write_bytes(self, path: str, data: bytes) -> None:
        files = (await self.sandbox()).filesystem
        with _of_file(path):
            await files.write(path, data)

    async def stat(self, path: str) -> FileEntry:
        files = (await self.sandbox()).filesystem
        with _of_file(path):
            return _entry(await files.stat(path))

    async def list_dir(self, path: str) -> List[FileEntry]:
        files = (await self.sandbox()).filesystem
        with _of_file(path):
            found = await files.listdir(path)
            # A list does not follow links.
            return [_entry(await files.stat(info.path) if info.mode == "l" else info) for info in found]

    async def make_dir(self, path: str) -> None:
        files = (await self.sandbox()).filesystem
        with _of_file(path):
            await files.mkdir(path)

    async def remove(self, path: str) -> None:
        sandbox = await self.sandbox()
        here, wanted = str(sandbox.workdir), posixpath.normpath(path)
        if here == wanted or here.startswith(wanted.rstrip("/") + "/"):
            raise ValueError(f"{path} is the working directory, or contains it")
        with _of_file(path):
            await sandbox.filesystem.remove(path)

    async def exists(self, path: str) -> bool:
        sandbox = await self.sandbox()
        with _unavailable():
            return await sandbox.filesystem.exists(path)


def _entry(info: FileInfo) -> FileEntry:
    return FileEntry(name=info.name, path=info.path, is_dir=info.is_dir, size=info.size if info.mode == "f" else None)


@contextmanager
def _unavailable() -> Iterator[None]:
    """Says in Pydantic AI's words that a sandbox is gone."""
    try:
        yield
    except SandlingError as error:
        # A missing file must not look like a missing sandbox.
        is_missing = isinstance(error, NotFoundError) and (
            error.code != "not_found" or error.message == "sandbox not found"
        )
        if is_missing or error.code == "guest_died":
            raise WorkspaceUnavailableError(str(error)) from error
        raise


@contextmanager
def _of_file(path: str) -> Iterator[None]:
    """Raises the errors that Python has for files."""
    try:
        with _unavailable():
            yield
    except SandlingError as error:
        kind: Any = FILE_ERRORS.get(error.code or "")
        if kind is None:
            raise
        raise kind(f"{path}: {error.message}") from error
