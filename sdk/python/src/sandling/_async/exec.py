"""Commands: streamed ones, background ones, and the list of all commands of a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Optional, Sequence, Union

from .._sse import ServerEvent
from ..errors import ConnectionError, ExecInterrupted, NotFoundError, from_answer
from ..models import Chunk, ExecInfo, ExecResult
from ..options import ExecOptions, exec_body, one_timeout
from .colour import Source, settle, sleep

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .sandbox import AsyncSandbox

#: How much the network may add to the timeout of a command.
GRACE = 60.0
#: The server's answer if a command reached its timeout.
TIMED_OUT = 504

OnOutput = Callable[[str], Any]


def patience(timeout_seconds: Optional[float]) -> Optional[float]:
    """How long to wait for the answer to a command with this timeout."""
    return None if timeout_seconds is None else timeout_seconds + GRACE


class AsyncExecStream:
    """The output of a running command: an iterator of :class:`Chunk`. Afterwards ``result`` says how it ended.

    If you stop early, the command continues; :meth:`kill` ends it.
    """

    def __init__(self, sandbox: AsyncSandbox, method: str, path: str, *, exec_id: str = "", **more: Any) -> None:
        self._sandbox = sandbox
        self._head: Dict[str, str] = {}
        self._events: Source[ServerEvent] = sandbox._events(method, path, head=self._head, **more)
        self._out: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        self._server_error: Dict[str, Any] = {}
        self._result: Optional[ExecResult] = None
        self._dropped = 0
        #: The ID of the command, as soon as it runs.
        self.id = exec_id

    @property
    def stdout(self) -> str:
        """The output so far."""
        return "".join(self._out["stdout"])

    @property
    def stderr(self) -> str:
        return "".join(self._out["stderr"])

    @property
    def result(self) -> ExecResult:
        """How the command ended. Available after the last chunk."""
        if self._result is None:
            raise RuntimeError("the command's output has not been read to its end")
        return self._result

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    async def kill(self) -> None:
        """Ends the command."""
        await AsyncExec(self._sandbox, self.id).kill()

    async def wait(self) -> ExecResult:
        """Reads the rest."""
        async for _ in self:
            pass
        return self.result

    async def aclose(self) -> None:
        """Stops listening."""
        await self._events.aclose()

    async def __aenter__(self) -> AsyncExecStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks()

    async def _chunks(self) -> Source[Chunk]:
        try:
            async for event in self._events:
                chunk = self._take(event)
                if chunk is not None:
                    yield chunk
                if self._result is not None:
                    break
        except ConnectionError as error:
            if not self._head:
                raise
            raise self._interrupted(error.message) from error
        await self.aclose()
        self._judge()

    def _take(self, event: ServerEvent) -> Optional[Chunk]:
        data = event.json()
        if event.name in self._out:
            self._out[event.name].append(data["chunk"])
            return Chunk(event.name, data["chunk"])
        if event.name == "start":
            self.id = data["id"]
        elif event.name == "error":
            self._server_error = data
        elif event.name == "exit":
            self._result = ExecResult.from_wire({"id": self.id, **data}, self.stdout, self.stderr)
        return None

    def _judge(self) -> None:
        printed = {"stdout": self.stdout, "stderr": self.stderr}
        server_error = dict(self._server_error)
        if self._result is not None and self._result.reason == "timeout":
            server_error = {"error": "command timeout", **server_error, "code": "command_timeout", "status": TIMED_OUT}
        elif self._result is not None:
            return
        if server_error:
            # The same error as without streaming.
            raise from_answer(server_error.pop("status", 500), self._head, {**server_error, **printed})
        raise self._interrupted("the command's output ended without an exit code")

    def _interrupted(self, why: str) -> ExecInterrupted:
        told = {"code": "interrupted", "request_id": self._head.get("x-request-id")}
        return ExecInterrupted(why, id=self.id, stdout=self.stdout, stderr=self.stderr, **told)


async def follow(stream: AsyncExecStream, on_stdout: Optional[OnOutput], on_stderr: Optional[OnOutput]) -> ExecResult:
    """Passes a command's output to callbacks and returns its result."""
    listeners = {"stdout": on_stdout, "stderr": on_stderr}
    async with stream:
        async for chunk in stream:
            listener = listeners[chunk.stream]
            if listener is not None:
                await settle(listener(chunk.text))
    return stream.result


class AsyncExec:
    """A background command. Its output is stored, and any client can read it from the first byte."""

    def __init__(self, sandbox: AsyncSandbox, exec_id: str, pid: int = 0) -> None:
        self._sandbox = sandbox
        self.id = exec_id
        self.pid = pid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> ExecInfo:
        return ExecInfo.from_wire(await self._sandbox._request("GET", f"/execs/{self.id}"))

    async def wait(self) -> ExecResult:
        """Waits until it ends."""
        path = f"/execs/{self.id}/result"
        answer = await self._sandbox._fetch("GET", path, params={"wait": "true"}, timeout=None)
        result = ExecResult.from_wire(answer.json())
        if result.reason == "timeout":
            told = {"error": f"command timeout after {result.duration:g}s", "code": "command_timeout"}
            printed = {"stdout": result.stdout, "stderr": result.stderr}
            raise from_answer(TIMED_OUT, answer.headers, {**told, **printed})
        return result

    def stream(self, start: int = 0) -> AsyncExecStream:
        """Its output from byte ``start``, followed by new output."""
        path = f"/execs/{self.id}/output"
        return AsyncExecStream(self._sandbox, "GET", path, exec_id=self.id, params={"from": start})

    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal, such as ``TERM`` or 15, to its process group."""
        await self._sandbox._request("POST", f"/execs/{self.id}/signal", body={"signal": signal})

    async def kill(self) -> None:
        await self.signal("KILL")

    async def _cancel(self) -> None:
        """Ends the command if it was started. The start may not have arrived yet."""
        for seconds in (0.05, 0.2, 0.5):
            try:
                return await self.kill()
            except NotFoundError as error:
                if error.code == "sandbox_ended" or error.message == "sandbox not found":
                    raise
            await sleep(seconds)

    async def forget(self) -> None:
        """Deletes its stored output."""
        await self._sandbox._request("DELETE", f"/execs/{self.id}")


class AsyncSandboxCommands:
    """The commands of a sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(
        self,
        cmd: Union[str, Sequence[str]],
        timeout: Optional[float] = None,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> ExecResult:
        """Runs a command and waits until it ends. ``timeout_seconds`` is the same as ``timeout``."""
        deadline = one_timeout(timeout, timeout_seconds)
        return await self._sandbox.exec(cmd, deadline, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    async def start(
        self,
        cmd: Union[str, Sequence[str]],
        timeout_seconds: Optional[float] = None,
        **options: Unpack[ExecOptions],
    ) -> AsyncExec:
        """Starts a command in the background."""
        body = {**exec_body(cmd, timeout_seconds, options), "detached": True}
        data = await self._sandbox._request("POST", "/exec", body=body)
        return AsyncExec(self._sandbox, data["id"], data["pid"])

    async def list(self) -> List[ExecInfo]:
        """Running commands, and ended ones whose output is still stored."""
        data = await self._sandbox._request("GET", "/execs")
        return [ExecInfo.from_wire(item) for item in data["execs"]]

    def get(self, exec_id: str) -> AsyncExec:
        """A command by its ID."""
        return AsyncExec(self._sandbox, exec_id)
