"""Contexts: live interpreters whose variables last from cell to cell."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from ..errors import NotFoundError, ServerError, from_answer
from ..models import Execution
from ..options import seconds_of
from .colour import settle
from .exec import OnOutput, patience

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

#: The server's default timeout of a cell.
DEFAULT_TIMEOUT = 30.0


async def run_live(
    sandbox: AsyncSandbox, body: Dict[str, Any], on_stdout: Optional[OnOutput], on_stderr: Optional[OnOutput]
) -> Execution:
    """Runs code in the default interpreter of a sandbox. If the caller stops waiting, the server interrupts it."""
    listeners = {"stdout": on_stdout, "stderr": on_stderr}
    head: Dict[str, str] = {}
    events = sandbox._events("POST", "/run-code/stream", head=head, body=body)
    try:
        async for event in events:
            data = event.json()
            listener = listeners.get(event.name)
            if listener is not None:
                await settle(listener(data["chunk"]))
            elif event.name == "result":
                return Execution.from_wire(data)
            elif event.name == "error":
                raise from_answer(data.pop("status", 500), head, data)
    finally:
        await events.aclose()
    raise ServerError("the code's output ended without a result", code="interrupted")


class AsyncCodeContext:
    """A live interpreter in a sandbox."""

    def __init__(self, sandbox: AsyncSandbox, context_id: str, language: str = "python") -> None:
        self._sandbox = sandbox
        self.id = context_id
        self.language = language

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.language}>"

    async def run_code(
        self, code: str, timeout_seconds: Optional[float] = None, *, output_limit: Optional[int] = None
    ) -> Execution:
        """Runs a cell. The value of its last expression is a result. An exception is in ``error``.

        :raises SandboxTimeout: the cell reached its timeout (30 s by default) and was interrupted.
        """
        body: Dict[str, Any] = {"code": code}
        if timeout_seconds is not None:
            body["timeout_ms"] = max(1, round(seconds_of(timeout_seconds) * 1000))
        if output_limit is not None:
            body["output_limit"] = output_limit
        timeout = patience(timeout_seconds or DEFAULT_TIMEOUT)
        return Execution.from_wire(await self._request("POST", "/run", body=body, timeout=timeout))

    async def interrupt(self) -> None:
        """Interrupts the running cell, like Ctrl-C."""
        await self._request("POST", "/interrupt")

    async def restart(self) -> None:
        """Starts a new interpreter, without variables."""
        await self._request("POST", "/restart")

    async def fork(self, count: int = 1, *, metadata: Optional[Dict[str, str]] = None) -> List[AsyncCodeContext]:
        """Copies the interpreter with its variables, each copy in a new sandbox (:attr:`sandbox`)."""
        body: Dict[str, Any] = {"count": count, **({"metadata": metadata} if metadata else {})}
        parent = self._sandbox
        data = await parent.client._make(parent._path(f"/contexts/{self.id}/fork"), body)
        children = [parent._child(child) for child in data["children"]]
        return [AsyncCodeContext(child, self.id, self.language) for child in children]

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox of the context."""
        return self._sandbox

    async def close(self) -> None:
        """Ends the context. It may have ended already."""
        with suppress(NotFoundError):
            await self._request("DELETE", "")

    async def __aenter__(self) -> AsyncCodeContext:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _request(self, method: str, path: str, **more: Any) -> Any:
        return await self._sandbox._request(method, f"/repl/sessions/{self.id}{path}", **more)


class AsyncContexts:
    """The contexts of a sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create(
        self,
        language: str = "python",
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
    ) -> AsyncCodeContext:
        """Starts an interpreter: ``python`` or ``node``."""
        wanted = {"language": language, "cwd": cwd, "env": env, "user": user}
        body = {name: value for name, value in wanted.items() if value is not None}
        data = await self._sandbox._request("POST", "/repl/sessions", body=body)
        return AsyncCodeContext(self._sandbox, data["id"], data.get("language", language))

    async def list(self) -> List[AsyncCodeContext]:
        data = await self._sandbox._request("GET", "/repl/sessions")
        return [AsyncCodeContext(self._sandbox, item["id"], item["language"]) for item in data]
