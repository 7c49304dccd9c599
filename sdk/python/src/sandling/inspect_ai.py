"""Sandboxes for evaluations with Inspect: ``pip install "sandling[inspect]"``.

A task names the provider, and each of its samples gets a sandbox::

    Task(dataset=..., solver=..., sandbox="sandling")

A template's name, or a :class:`SandlingConfig`, says which sandbox::

    Task(..., sandbox=("sandling", "agent"))
    Task(..., sandbox=SandboxEnvironmentSpec("sandling", SandlingConfig(image="python:3.12-slim", memory_mb=2048)))

In a solver or scorer, ``sandbox().as_type(SandlingEnvironment).sandbox`` is the sandbox itself: fork it, rewind it or
change its network.
"""

from __future__ import annotations

import posixpath
import uuid
from typing import Any, Dict, List, Literal, NoReturn, Optional, Union, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel

from ._async.sandbox import AsyncSandbox
from .errors import BadRequestError, ForbiddenError, NotFoundError, SandboxTimeout
from .options import DEFAULT_TEMPLATE

#: What a shell exits with if it may not execute a file.
NOT_EXECUTABLE = 126
#: Longer input, and input that is no text, goes through a file.
LONGEST_TEXT_INPUT = 64 * 1024
#: Runs a program with a file, which it removes, as its standard input.
WITH_INPUT = 'exec <"$0"; rm -f "$0"; exec "$@"'


class SandlingConfig(BaseModel, frozen=True):  # type: ignore[misc, call-arg]  # pydantic is installed only where it is tested
    """The sandbox of a sample. Missing options come from the template and the server."""

    template: str = DEFAULT_TEMPLATE
    #: An OCI image instead of a template.
    image: Optional[str] = None
    cpu: Optional[int] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    env: Optional[Dict[str, str]] = None
    #: As in ``Sandbox.create``, such as ``{"allow": ["pypi"]}``.
    network: Optional[Dict[str, Any]] = None
    #: The user of commands, unless Inspect names one.
    user: Optional[str] = None
    #: A sandbox ends after this time, even if the evaluation was killed.
    ttl_seconds: int = 24 * 3600

    def __hash__(self) -> int:
        # Inspect keeps configurations as keys of a dictionary.
        return hash(self.model_dump_json())


@sandboxenv(name="sandling")
class SandlingEnvironment(SandboxEnvironment):  # type: ignore[misc]
    """One sandbox."""

    def __init__(self, sandbox: AsyncSandbox, workdir: str, user: Optional[str] = None) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._workdir = workdir
        self._user = user

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Union[BaseModel, str, None], metadata: Dict[str, str]
    ) -> Dict[str, SandboxEnvironment]:
        wanted = config if isinstance(config, SandlingConfig) else SandlingConfig(template=config or DEFAULT_TEMPLATE)
        options = wanted.model_dump(exclude_none=True, exclude={"template", "user"})
        sandbox = await AsyncSandbox.create(wanted.template, labels={"inspect": task_name}, **options)
        workdir = (await sandbox.exec(["pwd"], check=True)).stdout.strip()
        return {"default": cls(sandbox, workdir, wanted.user)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Union[BaseModel, str, None],
        environments: Dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).sandbox.close()

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return SandlingConfig(**config)

    async def exec(  # noqa: PLR0917  # Inspect's signature
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        stdin = None
        if isinstance(input, str) and len(input) <= LONGEST_TEXT_INPUT:
            stdin = input
        elif input is not None:
            file = f"/tmp/.inspect-{uuid.uuid4().hex}"
            await self.sandbox.filesystem.write(file, input, mode="0644")
            cmd = ["/bin/sh", "-c", WITH_INPUT, file, *cmd]
        try:
            ran = await self.sandbox.exec(
                cmd,
                timeout,
                cwd=self._path(cwd or ""),
                env=env,
                user=user or self._user,
                stdin=stdin,
                output_limit=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
                on_limit="keep_tail",
            )
        except SandboxTimeout as error:
            raise TimeoutError(str(error)) from error
        except (BadRequestError, NotFoundError) as error:
            # There is no such user, directory or program, or it may not be executed.
            if isinstance(error, ForbiddenError) or error.code == "permission_denied":
                raise PermissionError(str(error)) from error
            return ExecResult(success=False, returncode=NOT_EXECUTABLE, stdout="", stderr=str(error))
        if ran.exit_code == NOT_EXECUTABLE and "permission denied" in ran.stderr.lower():
            raise PermissionError(f"{cmd[0]}: {ran.stderr.strip()}")
        return ExecResult(ran.exit_code == 0, ran.exit_code, ran.stdout, ran.stderr)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        try:
            await self.sandbox.filesystem.write(self._path(file), contents, user=self._user)
        except (BadRequestError, NotFoundError) as error:
            _raise_as_python(file, error)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        path = self._path(file)
        try:
            content = await self.sandbox.filesystem.read(path, length=most + 1)
        except (BadRequestError, NotFoundError) as error:
            # An empty file has no first byte.
            if error.code != "out_of_range":
                _raise_as_python(file, error)
            content = b""
        if len(content) > most:
            raise OutputLimitExceededError(
                limit_str=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, truncated_output=None
            )
        return content.decode() if text else content

    def _path(self, path: str) -> str:
        return posixpath.join(self._workdir, path)


def _raise_as_python(file: str, error: Exception) -> NoReturn:
    """Raises the error that Python has for a file."""
    kinds = {
        "is_a_directory": IsADirectoryError,
        "not_found": FileNotFoundError,
        "not_a_directory": FileNotFoundError,
        "permission_denied": PermissionError,
    }
    kind = kinds.get(getattr(error, "code", None) or "", OSError)
    raise kind(f"{file}: {error}") from error
