"""A sandbox for the shell of LangChain's ``ShellToolMiddleware``: ``pip install "sandling[langchain]"``.

The agent's shell then runs in the sandbox, and keeps its directory and variables from call to call::

    from langchain.agents import create_agent
    from langchain.agents.middleware import ShellToolMiddleware
    from sandling import Sandbox
    from sandling.langchain import SandboxExecutionPolicy

    with Sandbox.create() as sandbox:
        shell = ShellToolMiddleware(execution_policy=SandboxExecutionPolicy(sandbox))
        agent = create_agent("openai:gpt-5", middleware=[shell])

The sandbox stays yours: fork it, rewind it or change its network while the agent works.
``SandboxTools(sandbox).langchain()`` in :mod:`sandling.tools` has tools for code and files, too.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Callable, Coroutine, Dict, Mapping, Optional, Sequence, Tuple, cast

from langchain.agents.middleware.shell_tool import BaseExecutionPolicy

from ._async.client import AsyncClient
from ._async.sandbox import AsyncSandbox
from ._async.session import AsyncExecSession
from ._sync.sandbox import Sandbox
from .config import Endpoint
from .errors import SandlingError

#: Output is passed on and not collected, so it needs no limit.
NO_LIMIT = 1 << 62
#: The exit code of a shell whose connection was lost.
LOST = -1
#: How long input, or the end of the shell, may take to arrive, in seconds.
SEND_WITHIN = 60.0

Outputs = Dict[str, IO[bytes]]


class SandboxExecutionPolicy(BaseExecutionPolicy):  # type: ignore[misc]  # langchain is installed only where it is tested
    """Runs the shell in ``sandbox``, in its working directory or in ``cwd``.

    The ``workspace_root`` of the middleware is a directory of this machine, which the sandbox does not have. ``limits``
    are those of LangChain's own policies, such as ``command_timeout``.
    """

    def __init__(
        self, sandbox: Sandbox, *, cwd: Optional[str] = None, user: Optional[str] = None, **limits: Any
    ) -> None:
        super().__init__(**limits)
        self.sandbox = sandbox
        self._options = {name: value for name, value in {"cwd": cwd, "user": user}.items() if value is not None}

    def spawn(self, *, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> subprocess.Popen[str]:
        run = {"args": list(command), "env": dict(env), "output_limit": NO_LIMIT, **self._options}
        shell = SandboxShell(self.sandbox.client._transport.located(), self.sandbox.id, {"run": run})
        return cast("subprocess.Popen[str]", shell)


class SandboxShell:
    """A running shell, with the part of ``subprocess.Popen`` that LangChain uses.

    A thread of its own has the connection, because one that is encrypted cannot be read and written by two threads.
    """

    def __init__(self, endpoint: Endpoint, sandbox_id: str, start: Dict[str, Any]) -> None:
        self.returncode: Optional[int] = None
        self._ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._session: AsyncExecSession
        self.stdout, out = _pipe()
        self.stderr, err = _pipe()
        opened: Future[None] = Future()
        given = (endpoint, sandbox_id, start, opened, {"stdout": out, "stderr": err})
        threading.Thread(target=self._relay, args=given, name="sandling", daemon=True).start()
        opened.result()
        self.stdin = io.TextIOWrapper(io.BufferedWriter(_Input(self)), encoding="utf-8", newline="\n")

    @property
    def pid(self) -> int:
        """Always raises: a caller that killed the process with this number would end one of this machine."""
        raise PermissionError("the shell runs in a sandbox, so this machine has no process of it; use kill()")

    def poll(self) -> Optional[int]:
        return self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("the shell", timeout or 0)
        assert self.returncode is not None, "it is set first"
        return self.returncode

    def kill(self) -> None:
        """Ends the shell and what it runs."""
        self._do(self._session.kill)

    def _do(self, work: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Does something in the thread that has the connection."""
        if self._ended.is_set():
            raise BrokenPipeError("the shell has ended")
        try:
            asyncio.run_coroutine_threadsafe(work(*given), self._loop).result(SEND_WITHIN)
        except SandlingError as error:
            raise BrokenPipeError(str(error)) from error

    def _relay(
        self, endpoint: Endpoint, sandbox_id: str, start: Dict[str, Any], opened: Future[None], outputs: Outputs
    ) -> None:
        asyncio.set_event_loop(self._loop)
        code = LOST
        try:
            code = self._loop.run_until_complete(self._run(endpoint, sandbox_id, start, opened, outputs))
        except BaseException as error:
            if opened.done():
                outputs["stderr"].write(f"{error}\n".encode())
            else:
                opened.set_exception(error)
        finally:
            self.returncode = code
            self._ended.set()
            for output in outputs.values():
                output.close()
            self._loop.close()

    async def _run(
        self, endpoint: Endpoint, sandbox_id: str, start: Dict[str, Any], opened: Future[None], outputs: Outputs
    ) -> int:
        async with AsyncClient(endpoint.url, endpoint.token) as client:
            sandbox = await AsyncSandbox.get(sandbox_id, client=client)
            self._session = AsyncExecSession(sandbox, start)
            await self._session.open()
            opened.set_result(None)
            async for stream, output in self._session:
                # The pipe may be full until somebody reads it. Input must arrive meanwhile.
                await asyncio.to_thread(outputs[stream].write, output)
        assert self._session.exit_code is not None, "its output ended with it"
        return self._session.exit_code


class _Input(io.RawIOBase):
    """The input of a shell as a file."""

    def __init__(self, shell: SandboxShell) -> None:
        self._shell = shell

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._shell._do(self._shell._session.write, bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with suppress(BrokenPipeError):
                self._shell._do(self._shell._session.end_input)


def _pipe() -> Tuple[IO[str], IO[bytes]]:
    """Its end for the reader, and its end for the writer."""
    reader, writer = os.pipe()
    return open(reader, encoding="utf-8", errors="replace"), open(writer, "wb", buffering=0)
