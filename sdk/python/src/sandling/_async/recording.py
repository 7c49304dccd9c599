"""A client that records its requests, for machines that a pool hands out."""

from __future__ import annotations

import copy
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, AsyncIterator, Optional

from .._sse import ServerEvent
from ..audit import AuditLog, Recording
from ..config import Endpoint
from .colour import Source
from .transport import AsyncTransport

if TYPE_CHECKING:
    import httpx

    from .client import AsyncClient


def recorded(client: AsyncClient, audit: AuditLog, actor: Optional[str]) -> AsyncClient:
    """A copy of the client that records all requests to a sandbox and its copies in the audit log."""
    watched = copy.copy(client)
    watched._transport = AsyncRecordingTransport(client._transport, audit, actor)
    return watched


class AsyncRecordingTransport(AsyncTransport):
    """Sends requests through another transport and records each one."""

    def __init__(self, inner: AsyncTransport, audit: AuditLog, actor: Optional[str]) -> None:
        self._inner, self._audit, self._actor = inner, audit, actor

    async def fetch(self, method: str, path: str, **more: Any) -> httpx.Response:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            content = more.get("content")
            if content is not None and not isinstance(content, bytes):
                more["content"] = _passing(content, recording)
            answer = await self._inner.fetch(method, path, **more)
            recording.answered(answer.headers.get("content-type", ""), answer.content)
        return answer

    @asynccontextmanager
    async def stream(self, method: str, path: str, **more: Any) -> AsyncIterator[httpx.Response]:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            async with self._inner.stream(method, path, **more) as answer:
                # The reader of the stream reports its bytes.
                answer.extensions["recording"] = recording
                yield answer

    async def events(self, method: str, path: str, **more: Any) -> Source[ServerEvent]:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            source = self._inner.events(method, path, **more)
            try:
                async for event in source:
                    recording.heard(event)
                    yield event
            finally:
                await source.aclose()

    async def located(self) -> Endpoint:
        return await self._inner.located()

    def leave(self) -> None:
        self._inner.leave()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _passing(content: Any, recording: Recording) -> AsyncIterator[bytes]:
    async for block in content:
        recording.passed(recording.record.input, block)
        yield block
