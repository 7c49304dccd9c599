"""Async requests to this machine, over our own connections.

httpcore goes through anyio, which puts a cancel scope and a timer around every read, write and lock, and it writes the
head and the body of a request separately. That was most of the cost of an exec over loopback. This module uses the
transport of asyncio directly, with one write per request. h11 handles HTTP, as in httpcore. httpx handles TLS and other
machines.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import Any, AsyncIterator, Deque, Dict, Iterable, Iterator, List, Optional, Type, Union

import h11
import httpcore
import httpx

#: A larger body is sent in pieces of at least this size.
PIECE = 1 << 16
#: The buffer for a reader that is slower than the server.
MOST_KEPT = 1 << 18


class LoopbackTransport(httpx.AsyncBaseTransport):
    """Reuses idle connections and opens new ones when necessary."""

    def __init__(self, limits: httpx.Limits, socket_options: Iterable[Any]) -> None:
        self._expiry = math.inf if limits.keepalive_expiry is None else limits.keepalive_expiry
        self._socket_options = socket_options
        self._idle: Deque[_Connection] = deque(maxlen=limits.max_keepalive_connections)
        self._used: Dict[_Connection, None] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        limits = request.extensions["timeout"]
        with _told_as_httpx_does():
            connection = self._kept() or await self._connect(request.url, limits["connect"])
            self._used[connection] = None
            try:
                await connection.ask(request, limits["write"])
                head = await connection.answer(limits["read"])
            except BaseException:
                self._done(connection)
                raise
        body = _Body(self, connection, limits["read"])
        switched = {"network_stream": connection} if head.status_code == 101 else {}
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=body, extensions=switched)

    async def aclose(self) -> None:
        for connection in [*self._used, *self._idle]:
            await connection.aclose()
        self._used.clear()
        self._idle.clear()

    def leave(self) -> None:
        """Closes connections whose event loop was closed before it closed them."""
        for connection in [*self._used, *self._idle]:
            if connection.leave():
                self._used.pop(connection, None)
                with suppress(ValueError):
                    self._idle.remove(connection)

    def _kept(self) -> Optional[_Connection]:
        """The connection that was used last, if it can be reused."""
        while self._idle:
            connection = self._idle.pop()
            if time.monotonic() < connection.idle_since + self._expiry and connection.is_quiet():
                return connection
            connection.abort()
        return None

    async def _connect(self, url: httpx.URL, within: Optional[float]) -> _Connection:
        host, port = url.host, url.port or 80
        connecting = asyncio.get_running_loop().create_connection(_Connection, host, port)
        try:
            _, connection = await asyncio.wait_for(connecting, within)
        except asyncio.TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host}:{port} did not answer") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        for option in self._socket_options:
            connection.get_extra_info("socket").setsockopt(*option)
        return connection

    def _done(self, connection: _Connection) -> None:
        """Makes a connection idle, if no data is left on it."""
        self._used.pop(connection, None)
        if not connection.begin_anew():
            connection.abort()
            return
        if len(self._idle) == self._idle.maxlen:
            self._idle.popleft().abort()
        self._idle.append(connection)


class _Body(httpx.AsyncByteStream):
    def __init__(self, owner: LoopbackTransport, connection: _Connection, within: Optional[float]) -> None:
        self._owner, self._connection, self._within = owner, connection, within
        self._is_done = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _told_as_httpx_does():
            while True:
                event = await self._connection.event(self._within)
                if not isinstance(event, h11.Data):
                    return
                yield bytes(event.data)

    async def aclose(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._owner._done(self._connection)


@contextmanager
def _told_as_httpx_does() -> Iterator[None]:
    """Raises errors of httpcore and h11 as the errors of httpx with the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, h11.ProtocolError) as error:
        kind: Type[httpx.TransportError] = getattr(httpx, type(error).__name__)
        raise kind(str(error)) from error


class _Connection(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection. At most one task reads and one writes."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT)
        self._kept = bytearray()
        self._ended = self._is_gone = self._paused = self._full = False
        self._error: Optional[Exception] = None
        self._reader: Optional[asyncio.Future[None]] = None
        self._writer: Optional[asyncio.Future[None]] = None
        self.idle_since = 0.0

    async def ask(self, request: httpx.Request, within: Optional[float]) -> None:
        """Sends a request. If the server refuses it before it has read everything, its answer still arrives."""
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        unsent: List[bytes] = [self._http.send(head) or b""]
        size = len(unsent[0])
        assert isinstance(request.stream, httpx.AsyncByteStream)
        async for part in request.stream:
            unsent.append(self._http.send(h11.Data(data=part)) or b"")
            size += len(unsent[-1])
            if size >= PIECE:
                if self._transport.is_closing():
                    return
                await self.write(b"".join(unsent), within)
                unsent, size = [], 0
        unsent.append(self._http.send(h11.EndOfMessage()) or b"")
        if not self._transport.is_closing():
            await self.write(b"".join(unsent), within)

    async def answer(self, within: Optional[float]) -> Union[h11.Response, h11.InformationalResponse]:
        """The head of the answer."""
        while True:
            event = await self.event(within)
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                # What follows is not HTTP.
                self._kept[:0] = self._http.trailing_data[0]
                return event

    async def event(self, within: Optional[float]) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            received = await self.read(PIECE, within)
            if not received and self._http.their_state is h11.SEND_RESPONSE:
                raise httpcore.ReadError("the server has closed the connection without an answer")
            self._http.receive_data(received)

    def begin_anew(self) -> bool:
        """Whether the next request can go over this connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.idle_since = time.monotonic()
        return not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Whether an idle connection has nothing to read, not even an end that the loop has not noticed yet."""
        if self._ended or self._kept or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    async def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
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
        self._transport.write(buffer)
        if self._full:
            self._writer = self._loop.create_future()
            await self._wait(self._writer, timeout, httpcore.WriteTimeout)

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        # Nobody needs unsent data any more. A transport that is gone cannot be aborted.
        if not self._is_gone:
            self._transport.abort()

    def leave(self) -> bool:
        """Closes the socket if its event loop is closed. asyncio would do it in the next iteration of the loop."""
        if not self._loop.is_closed():
            return False
        finish = getattr(self._transport, "_call_connection_lost", None)
        if finish is not None and not self._is_gone:
            # Tasks that still wait for it belong to that loop.
            with suppress(RuntimeError):
                finish(None)
        return True

    def get_extra_info(self, info: str) -> Any:
        return self._transport.get_extra_info(info)

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
        self._ended = self._is_gone = True
        self._full, self._error = False, exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)

    async def _wait(self, woken: asyncio.Future[None], timeout: Optional[float], late: Type[Exception]) -> None:
        timer = None if timeout is None else self._loop.call_later(timeout, _fail, woken, late)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()


def _wake(waiting: Optional[asyncio.Future[None]]) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _fail(waiting: asyncio.Future[None], late: Type[Exception]) -> None:
    if not waiting.done():
        waiting.set_exception(late())
