"""Requests of the event loop to this machine, without httpcore's own connections.

Those go through anyio: a cancel scope and a timer around every read and write, and one write for a request's head and
another for its body. Together that was most of what an exec over loopback cost. Here asyncio's transport is used as it
is, and what is written in one breath is sent at once. Everything else is still httpcore's: the pool, HTTP, when to let
go of a connection. Other machines, and TLS, are left to httpx.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import contextmanager
from typing import Any, AsyncIterator, Iterable, Iterator, List, Optional, Type

import httpcore
import httpx

#: So much is sent without waiting for more of the same breath.
BREATH = 1 << 16
#: So much is kept for a reader who is slower than the server.
MOST_KEPT = 1 << 18


class LoopbackTransport(httpx.AsyncBaseTransport):
    """What httpx makes of httpcore's pool, over connections of our own."""

    def __init__(self, limits: httpx.Limits, socket_options: Iterable[Any]) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            socket_options=socket_options,
            network_backend=_Backend(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        core = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _told_as_httpx_does():
            answer = await self._pool.handle_async_request(core)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _told_as_httpx_does():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextmanager
def _told_as_httpx_does() -> Iterator[None]:
    """The two packages have the same names for what can go wrong."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        kind: Type[httpx.TransportError] = getattr(httpx, type(error).__name__)
        raise kind(str(error)) from error


class _Backend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Optional[float] = None,
        local_address: Optional[str] = None,
        socket_options: Optional[Iterable[Any]] = None,
    ) -> httpcore.AsyncNetworkStream:
        connecting = asyncio.get_running_loop().create_connection(_Connection, host, port)
        try:
            _, connection = await asyncio.wait_for(connecting, timeout)
        except asyncio.TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} did not answer") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        for option in socket_options or ():
            connection.get_extra_info("socket").setsockopt(*option)
        return connection

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Connection(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection. At most one task reads and one writes."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._unsent: List[bytes] = []
        self._unsent_size = 0
        self._ended = self._paused = self._full = False
        self._error: Optional[Exception] = None
        self._reader: Optional[asyncio.Future[None]] = None
        self._writer: Optional[asyncio.Future[None]] = None

    async def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        self._send()
        if not self._kept and not self._ended:
            self._reader = self._loop.create_future()
            await self._wait(self._reader, timeout, httpcore.ReadTimeout)
        if not self._kept and self._error is not None:
            raise httpcore.ReadError(str(self._error)) from self._error
        data = bytes(self._kept[:max_bytes])
        del self._kept[:max_bytes]
        if self._paused and len(self._kept) < MOST_KEPT:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        if self._transport.is_closing():
            raise httpcore.WriteError("the server has closed the connection") from self._error
        if not buffer:
            return
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(buffer)
        self._unsent_size += len(buffer)
        if self._unsent_size >= BREATH:
            self._send()
        if self._full:
            self._writer = self._loop.create_future()
            await self._wait(self._writer, timeout, httpcore.WriteTimeout)
            if self._error is not None:
                raise httpcore.WriteError(str(self._error)) from self._error

    async def aclose(self) -> None:
        self._send()
        # What the kernel has not taken by now is wanted by nobody.
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # Asked of one that is idle: something to read can only be its end, which the loop may not have seen yet.
            return self._ended or bool(self._kept) or self._transport.is_closing() or _is_readable(self._transport)
        return self._transport.get_extra_info({"client_addr": "sockname", "server_addr": "peername"}.get(info, info))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > MOST_KEPT and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._ended = True
        _wake(self._reader)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._ended, self._full, self._error = True, False, exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)

    def _send(self) -> None:
        if self._unsent:
            together = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
            self._unsent, self._unsent_size = [], 0
            self._transport.write(together)

    async def _wait(self, woken: asyncio.Future[None], timeout: Optional[float], late: Type[Exception]) -> None:
        timer = None if timeout is None else self._loop.call_later(timeout, _fail, woken, late())
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()


def _wake(waiting: Optional[asyncio.Future[None]]) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _fail(waiting: asyncio.Future[None], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)


def _is_readable(transport: asyncio.Transport) -> bool:
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))
