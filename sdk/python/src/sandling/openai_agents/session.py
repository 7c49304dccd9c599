"""A session of the Agents SDK in a sandbox."""

from __future__ import annotations

import io
import json
import logging
import posixpath
import shlex
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Tuple, Union
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.mount_lifecycle import with_ephemeral_mounts_removed
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

from .._async.client import AsyncClient
from .._async.sandbox import AsyncSandbox
from ..errors import NotFoundError, SandboxTimeout, SandlingError
from ..options import DEFAULT_TEMPLATE
from .terminals import Terminals

#: What a shell exits with if there is no such program.
NOT_FOUND = 127
#: A saved workspace that begins with this is the ID of a snapshot; any other is a tar.
SNAPSHOT_MAGIC = b"SANDLING_SNAPSHOT_V1\n"

logger = logging.getLogger(__name__)


class SandlingSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc]  # installed only where it is tested
    """The sandbox of a session. Missing options come from the template and the server."""

    type: Literal["sandling"] = "sandling"
    template: str = DEFAULT_TEMPLATE
    #: An OCI image instead of a template.
    image: Optional[str] = None
    cpu: Optional[int] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    env: Optional[Dict[str, str]] = None
    #: As in ``Sandbox.create``, such as ``{"allow": ["pypi"], "secrets": ["API_KEY"]}``.
    network: Optional[Dict[str, Any]] = None
    metadata: Optional[Dict[str, str]] = None
    #: A sandbox ends after this time, even if the agent's process was killed.
    ttl_seconds: int = 24 * 3600
    #: Ports that ``session.resolve_exposed_port`` may open.
    exposed_ports: Tuple[int, ...] = ()
    #: Hibernate the sandbox at the end of the session. The session's state resumes it with its processes.
    hibernate_on_exit: bool = False
    #: Save the workspace as a tar, or the whole machine as a snapshot.
    workspace_persistence: Literal["tar", "snapshot"] = "tar"

    async def make(self, client: Optional[AsyncClient], **more: Any) -> AsyncSandbox:
        """Creates the sandbox."""
        names = ("image", "cpu", "memory_mb", "disk_mb", "env", "network", "metadata", "ttl_seconds")
        options = {name: getattr(self, name) for name in names}
        return await AsyncSandbox.create(self.template, client=client, **options, **more)


class SandlingSandboxSessionState(SandboxSessionState):  # type: ignore[misc]
    """What a session can be resumed from, in another process, too."""

    type: Literal["sandling"] = "sandling"
    sandbox_id: str
    options: SandlingSandboxClientOptions


class SandlingSandboxSession(BaseSandboxSession):  # type: ignore[misc]
    """One sandbox. ``sandbox`` is the sandbox itself: fork it, rewind it or change its network."""

    state: SandlingSandboxSessionState

    def __init__(self, state: SandlingSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox
        self._terminals = Terminals()
        self._root_exists = False

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        try:
            await self.sandbox.filesystem.mkdir(root.as_posix())
        except SandlingError as error:
            raise WorkspaceStartError(path=root, cause=error) from error
        self._root_exists = True

    async def _after_start(self) -> None:
        # A restored snapshot is another sandbox.
        if self._runtime_helper_cache_key != self._current_runtime_helper_cache_key():
            await self._ensure_runtime_helpers()

    def _runtime_helpers(self) -> Tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> Optional[object]:
        return self.state.sandbox_id

    async def _validate_path_access(self, path: Union[Path, str], *, for_write: bool = False) -> Path:
        where: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return where

    async def running(self) -> bool:
        try:
            return self._root_exists and (await self.sandbox.refresh()).status == "running"
        except SandlingError:
            return False

    async def _shutdown_backend(self) -> None:
        try:
            if self.state.options.hibernate_on_exit:
                await self.sandbox.hibernate()
            else:
                await self.sandbox.close()
        except SandlingError as error:
            logger.warning("the sandbox %s continues until its TTL ends: %s", self.sandbox.id, error)

    async def _run_body(self, command: Tuple[Union[str, Path], ...]) -> Dict[str, Any]:
        """The program, its user, its directory and its variables."""
        args = [str(part) for part in command]
        body: Dict[str, Any] = {"env": await self.state.manifest.environment.resolve()}
        # The Agents SDK puts `sudo -u USER --` before a command of another user.
        if args[:2] == ["sudo", "-u"] and args[3:4] == ["--"]:
            body["user"], args = args[2], args[4:]
        if self._root_exists:
            body["cwd"] = self.state.manifest.root
        return {**body, "args": args}

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        body = await self._run_body(command)
        try:
            ran = await self.sandbox.exec(body.pop("args"), timeout, on_limit="keep_tail", **body)
        except SandboxTimeout as error:
            raise ExecTimeoutError(command=command, timeout_s=timeout, cause=error) from error
        except SandlingError as error:
            # There is no such user, directory or program.
            if error.code in ("cannot_start", "invalid"):
                return ExecResult(stdout=b"", stderr=error.message.encode(), exit_code=NOT_FOUND)
            raise ExecTransportError(command=command, cause=error) from error
        return ExecResult(stdout=ran.stdout.encode(), stderr=ran.stderr.encode(), exit_code=ran.exit_code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: Union[str, Path],
        timeout: Optional[float] = None,
        shell: Union[bool, List[str]] = True,
        user: Union[str, User, None] = None,
        tty: bool = False,
        yield_time_s: Optional[float] = None,
        max_output_tokens: Optional[int] = None,
    ) -> PtyExecUpdate:
        prepared = self._prepare_exec_command(*command, shell=shell, user=user)
        body = await self._run_body(tuple(prepared))
        if timeout is not None:
            body["timeout_seconds"] = timeout
        try:
            terminal = await self._terminals.open(self.sandbox, body, tty=tty)
        except SandlingError as error:
            raise ExecTransportError(command=command, cause=error) from error
        return await self._terminals.update(terminal, yield_time_s, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: Optional[float] = None,
        max_output_tokens: Optional[int] = None,
    ) -> PtyExecUpdate:
        self._resolve_pty_session_entry(pty_processes=self._terminals.running, session_id=session_id)
        await self._terminals.write(session_id, chars)
        return await self._terminals.update(session_id, yield_time_s, max_output_tokens, typed=chars)

    async def pty_terminate_all(self) -> None:
        await self._terminals.close()

    async def read(self, path: Path, *, user: Union[str, User, None] = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        return io.BytesIO(await self._content(path, None))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._content(path, max_bytes)

    async def _content(self, path: Path, most: Optional[int]) -> bytes:
        where = await self._validate_path_access(path)
        try:
            return await self.sandbox.filesystem.read(where.as_posix(), length=most)
        except NotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except SandlingError as error:
            # An empty file has no first byte.
            if error.code == "out_of_range":
                return b""
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Union[str, User, None] = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        where = await self._validate_path_access(path, for_write=True)
        owner = user.name if isinstance(user, User) else user
        try:
            await self.sandbox.filesystem.write(where.as_posix(), _bytes_of(data, path), user=owner)
        except SandlingError as error:
            raise WorkspaceArchiveWriteError(path=where, cause=error) from error

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            url = urlsplit((await self.sandbox.preview(port)).url)
        except SandlingError as error:
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable", cause=error
            ) from error
        tls = url.scheme == "https"
        return ExposedPortEndpoint(url.hostname or "", url.port or (443 if tls else 80), tls, url.query)

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        saved: io.IOBase = await with_ephemeral_mounts_removed(
            self,
            self._save,
            error_path=root,
            error_cls=WorkspaceArchiveReadError,
            operation_error_context_key="save_error",
        )
        return saved

    async def _save(self) -> io.IOBase:
        root, skipped = self._workspace_root_path(), self._persist_workspace_skip_relpaths()
        try:
            # A snapshot cannot leave anything out.
            if self.state.options.workspace_persistence == "snapshot" and not skipped:
                return io.BytesIO(SNAPSHOT_MAGIC + json.dumps({"id": await self.sandbox.snapshot()}).encode())
            archive = self._archive_path()
            excludes = " ".join(shell_tar_exclude_args(skipped))
            pack = f"tar {excludes} -C {shlex.quote(root.as_posix())} -cf {archive} ."
            try:
                await self.sandbox.exec(pack, check=True, cwd="/")
                return io.BytesIO(await self.sandbox.filesystem.read(archive))
            finally:
                await self.sandbox.exec(["rm", "-f", archive])
        except SandlingError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        saved = _bytes_of(data, root)
        try:
            if saved.startswith(SNAPSHOT_MAGIC):
                await self._restore(json.loads(saved[len(SNAPSHOT_MAGIC) :])["id"])
            else:
                validate_tar_bytes(saved, allow_external_symlink_targets=False)
                await self._unpack(saved, root)
        except (SandlingError, UnsafeTarMemberError) as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        self._root_exists = True

    async def _restore(self, snapshot: str) -> None:
        restored = await self.state.options.make(self.sandbox.client, from_snapshot=snapshot)
        await self.sandbox.close()
        self.sandbox, self.state.sandbox_id = restored, restored.id

    async def _unpack(self, saved: bytes, root: Path) -> None:
        archive = self._archive_path()
        await self.sandbox.filesystem.mkdir(root.as_posix())
        await self.sandbox.filesystem.write(archive, saved)
        unpack = f"tar -C {shlex.quote(root.as_posix())} -xf {archive} && rm {archive}"
        await self.sandbox.exec(unpack, check=True, cwd="/")

    def _archive_path(self) -> str:
        return posixpath.join("/tmp", f"workspace-{self.state.session_id.hex}.tar")


def _bytes_of(data: io.IOBase, path: Path) -> bytes:
    content = data.read()
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
    return bytes(content)
