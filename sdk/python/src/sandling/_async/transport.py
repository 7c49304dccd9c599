"""Requests and answers over one connection pool to one server, with errors as exceptions.

httpx is imported with the first connection, because its import takes longer than everything else here.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .. import local
from .._sse import EventDecoder, ServerEvent
from .._version import __version__
from ..config import Endpoint, shown
from ..errors import ConnectionError, RequestTimeout, from_answer
from .colour import Source, in_thread, leave, to_loopback

if TYPE_CHECKING:
    import httpx

    Pool = Union[httpx.AsyncClient, httpx.AsyncBaseTransport]

CONNECT_WITHIN = 10.0
#: The server sends a keep-alive every ten seconds.
STREAM_SILENCE = 60.0
#: Shorter than the server's idle timeout, so that no connection closes during a request.
KEEP_ALIVE = 45.0
#: TCP_KEEPIDLE has another name on macOS, which Python knows since 3.10.
_KEEPIDLE: int = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0x10))
#: Detects a peer that disappeared, also while a command without a timeout runs.
SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, _KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]

MOST_URLS = 256

Params = Mapping[str, Union[str, int]]


class _Server:
    """The server that requests go to, and what they share."""

    def __init__(self, endpoint: Endpoint, *, is_local: bool) -> None:
        self.endpoint, self.is_local = endpoint, is_local
        self.headers = _headers(endpoint)
        self._urls: Dict[str, httpx.URL] = {}

    def url(self, path: str) -> httpx.URL:
        """The full URL. Cached, because parsing a URL takes as long as everything else here."""
        import httpx

        url = self._urls.get(path)
        if url is None:
            if len(self._urls) >= MOST_URLS:
                self._urls.clear()
            url = self._urls[path] = httpx.URL(self.endpoint.url + path)
        return url


class AsyncTransport:
    """Sends requests. ``named`` returns the configured server, if there is one; it is called for the first request.

    Otherwise requests go to the local server. If that is gone, the transport finds or starts another one. An idle
    server may exit, and the next one has another port.
    """

    def __init__(self, named: Callable[[], Optional[Endpoint]], timeout: float) -> None:
        self._named = named
        self._timeout = timeout
        self._lock = threading.Lock()
        self._pool: Optional[Pool] = None
        self._server: Optional[_Server] = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: Union[float, str, None] = "default",
    ) -> Any:
        """Sends JSON and returns the JSON of the answer; ``None`` if it has no body."""
        answer = await self.fetch(method, path, body=body, params=params, headers=headers, timeout=timeout)
        return json.loads(answer.content) if answer.content else None

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: Any = None,
        params: Optional[Params] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: Union[float, str, None] = "default",
    ) -> httpx.Response:
        """Sends JSON, bytes or an iterator of bytes, and returns the whole answer."""
        import httpx

        seconds = self._timeout if isinstance(timeout, str) else timeout
        try:
            answer = await self._send(method, path, body, content, params=params, headers=headers, seconds=seconds)
            # Reading to the end makes the connection idle again.
            await answer.aread()
        except httpx.TransportError as error:
            raise self._lost(error) from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        headers: Optional[Dict[str, str]] = None,
        silence: Optional[float] = STREAM_SILENCE,
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body is streamed. ``silence`` is the read timeout."""
        import httpx

        try:
            answer = await self._send(method, path, body, None, params=params, headers=headers, seconds=silence)
            try:
                if answer.status_code >= 400:
                    await answer.aread()
                    raise _refusal(answer)
                yield answer
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    async def events(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        head: Optional[Dict[str, str]] = None,
    ) -> Source[ServerEvent]:
        """The events of an event stream. ``head`` gets the headers of the answer."""
        headers = {"accept": "text/event-stream"}
        async with self.stream(method, path, body=body, params=params, headers=headers) as answer:
            if head is not None:
                head.update(answer.headers)
            decoder = EventDecoder()
            async for received in answer.aiter_bytes():
                for event in decoder.feed(received):
                    yield event

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    def leave(self) -> None:
        """Closes the connections if their event loop is closed and cannot do it."""
        pool, self._pool = self._pool, None
        if pool is not None:
            leave(pool)

    async def located(self) -> Endpoint:
        """The server's endpoint."""
        return (self._server or await self._find()).endpoint

    async def _find(self, gone: Optional[_Server] = None) -> _Server:
        """Finds the server. ``gone`` is the one that no longer answers."""
        found = await in_thread(lambda: self._resolve(gone))
        with self._lock:
            if self._server is None or self._server is gone:
                # The same pool connects to the new server. Requests on old connections continue.
                if gone is not None and _way(gone.endpoint) != _way(found.endpoint):
                    self._pool = None
                self._server = found
            return self._server

    def _resolve(self, gone: Optional[_Server]) -> _Server:
        named = self._named()
        return _Server(named or local.ensure(None if gone is None else gone.endpoint.url), is_local=named is None)

    def _connections(self, server: _Server) -> Pool:
        with self._lock:
            if self._pool is None:
                self._pool = _pool(server.endpoint)
            return self._pool

    def _lost(self, error: httpx.TransportError) -> ConnectionError:
        import httpx

        said = str(error) or type(error).__name__
        server = "the server" if self._server is None else f"the server at {shown(self._server.endpoint.url)}"
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
            return RequestTimeout(f"{server} did not answer in time: {said}")
        return ConnectionError(f"the connection to {server} failed: {said}")

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content: Any,
        *,
        params: Optional[Params],
        headers: Optional[Dict[str, str]],
        seconds: Optional[float],
    ) -> httpx.Response:
        """Sends a request, with JSON, bytes or no body, and returns the head of the answer."""
        import httpx

        own = {name.encode(): value.encode() for name, value in (headers or {}).items()}
        if body is not None:
            content = json.dumps(body).encode()
            own[b"content-type"] = b"application/json"
        limits = {"connect": CONNECT_WITHIN, "read": seconds, "write": seconds, "pool": seconds}
        server = self._server or await self._find()
        try:
            return await self._send_to(server, method, path, content, params=params, own=own, limits=limits)
        except httpx.ConnectError:
            if not server.is_local:
                raise
            # Nothing was sent.
            server = await self._find(gone=server)
        return await self._send_to(server, method, path, content, params=params, own=own, limits=limits)

    async def _send_to(
        self,
        server: _Server,
        method: str,
        path: str,
        content: Any,
        *,
        params: Optional[Params],
        own: Dict[bytes, bytes],
        limits: Dict[str, Optional[float]],
    ) -> httpx.Response:
        """Builds the request here, because httpx's client handles cookies, redirects and merging, which is slow."""
        import httpx

        request = httpx.Request(
            method,
            server.url(path),
            params=params,
            headers=[*(pair for pair in server.headers if pair[0] not in own), *own.items()],
            content=content,
            extensions={"timeout": limits},
        )
        pool = self._pool or self._connections(server)
        if isinstance(pool, httpx.AsyncClient):
            request.extensions["trace"] = _traced
            return await pool.send(request, stream=True)
        return await pool.handle_async_request(request)


def _headers(endpoint: Endpoint) -> List[Tuple[bytes, bytes]]:
    own = {"authorization": f"Bearer {endpoint.token}", "user-agent": f"sandling-py/{__version__}"}
    own.update({"accept": "application/json", "host": urlsplit(endpoint.url).netloc.rpartition("@")[2]})
    return [(name.encode(), value.encode()) for name, value in own.items()]


def _way(endpoint: Endpoint) -> str:
    parts = urlsplit(endpoint.url)
    if parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        return "elsewhere"
    return "loopback" if parts.scheme == "http" else "loopback by TLS"


def _pool(endpoint: Endpoint) -> Pool:
    import httpx

    way = _way(endpoint)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE)
    if way == "elsewhere":
        # The client reads proxies and certificates from the environment.
        return httpx.AsyncClient(limits=limits)
    # A local server needs no proxy. Certificates are loaded only if they are needed.
    if way == "loopback":
        return to_loopback(limits, SOCKET_OPTIONS)
    return httpx.AsyncHTTPTransport(limits=limits, socket_options=SOCKET_OPTIONS)


async def _traced(what: str, about: Mapping[str, Any]) -> None:
    """Sets socket options through tracing, because a client with proxies from the environment takes none."""
    if what.endswith("connect_tcp.complete"):
        for option in SOCKET_OPTIONS:
            about["return_value"].get_extra_info("socket").setsockopt(*option)


def _refusal(answer: httpx.Response) -> Exception:
    try:
        body: Any = answer.json()
    except ValueError:
        body = answer.text
    return from_answer(answer.status_code, answer.headers, body)
