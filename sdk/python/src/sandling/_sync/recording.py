# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A client that records its requests, for machines that a pool hands out."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional

from .._sse import ServerEvent
from ..audit import AuditLog, Recording
from ..config import Endpoint
from .colour import Source
from .transport import Transport

if TYPE_CHECKING:
    import httpx

    from .client import Client


def recorded(client: Client, audit: AuditLog, actor: Optional[str]) -> Client:
    """A copy of the client that records all requests to a sandbox and its copies in the audit log."""
    watched = copy.copy(client)
    watched._transport = RecordingTransport(client._transport, audit, actor)
    return watched


class RecordingTransport(Transport):
    """Sends requests through another transport and records each one."""

    def __init__(self, inner: Transport, audit: AuditLog, actor: Optional[str]) -> None:
        self._inner, self._audit, self._actor = inner, audit, actor

    def fetch(self, method: str, path: str, **more: Any) -> httpx.Response:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            content = more.get("content")
            if content is not None and not isinstance(content, bytes):
                more["content"] = _passing(content, recording)
            answer = self._inner.fetch(method, path, **more)
            recording.answered(answer.headers.get("content-type", ""), answer.content)
        return answer

    @contextmanager
    def stream(self, method: str, path: str, **more: Any) -> Iterator[httpx.Response]:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            with self._inner.stream(method, path, **more) as answer:
                # The reader of the stream reports its bytes.
                answer.extensions["recording"] = recording
                yield answer

    def events(self, method: str, path: str, **more: Any) -> Source[ServerEvent]:
        with Recording(self._audit, self._actor, method, path, more) as recording:
            source = self._inner.events(method, path, **more)
            try:
                for event in source:
                    recording.heard(event)
                    yield event
            finally:
                source.close()

    def located(self) -> Endpoint:
        return self._inner.located()

    def leave(self) -> None:
        self._inner.leave()

    def close(self) -> None:
        self._inner.close()


def _passing(content: Any, recording: Recording) -> Iterator[bytes]:
    for block in content:
        recording.passed(recording.record.input, block)
        yield block
