# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""Requests and answers: one pool of connections to one server, errors as exceptions.

httpx is imported with the first connection, because importing it costs more than everything else here together.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .._sse import EventDecoder, ServerEvent
from .._version import __version__
from ..config import Endpoint
from ..errors import ConnectionError, RequestTimeout, from_answer
from .colour import Source, in_thread, to_loopback

if TYPE_CHECKING:
    import httpx

CONNECT_WITHIN = 10.0
#: The server sends a sign of life every ten seconds.
STREAM_SILENCE = 60.0
#: Shorter than the server's own limit for idle connections, so that none is closed under a request.
KEEP_ALIVE = 45.0
#: A peer that vanished without a word is noticed even while a command is waited for without a deadline.
SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]

MOST_URLS = 256

Params = Mapping[str, Union[str, int]]


class Transport:
    """Sends requests. ``resolve`` says where to; it is asked once, when the first request is made."""

    def __init__(self, resolve: Callable[[], Endpoint], timeout: float) -> None:
        self._resolve = resolve
        self._timeout = timeout
        self._lock = threading.Lock()
        self._pool: Union[httpx.Client, httpx.BaseTransport, None] = None
        self._headers: List[Tuple[bytes, bytes]] = []
        self._urls: Dict[str, httpx.URL] = {}
        self.endpoint: Optional[Endpoint] = None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: Union[float, str, None] = "default",
    ) -> Any:
        """Sends JSON and gives the answer's JSON; ``None`` for an answer without a body."""
        answer = self.fetch(method, path, body=body, params=params, headers=headers, timeout=timeout)
        return json.loads(answer.content) if answer.content else None

    def fetch(
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
        """Sends JSON, or bytes, or an iterator of bytes, and gives the whole answer."""
        import httpx

        seconds = self._timeout if isinstance(timeout, str) else timeout
        try:
            answer = self._send(method, path, body, content, params=params, headers=headers, seconds=seconds)
            # Reads it to its end, which gives the connection back.
            answer.read()
        except httpx.TransportError as error:
            raise _lost(error) from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        headers: Optional[Dict[str, str]] = None,
        silence: Optional[float] = STREAM_SILENCE,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is still to come. ``silence`` is how long nothing may come."""
        import httpx

        try:
            answer = self._send(method, path, body, None, params=params, headers=headers, seconds=silence)
            try:
                if answer.status_code >= 400:
                    answer.read()
                    raise _refusal(answer)
                yield answer
            finally:
                answer.close()
        except httpx.TransportError as error:
            raise _lost(error) from error

    def events(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Optional[Params] = None,
        head: Optional[Dict[str, str]] = None,
    ) -> Source[ServerEvent]:
        """The events of an event stream. ``head`` gets the answer's headers."""
        headers = {"accept": "text/event-stream"}
        with self.stream(method, path, body=body, params=params, headers=headers) as answer:
            if head is not None:
                head.update(answer.headers)
            decoder = EventDecoder()
            for received in answer.iter_bytes():
                for event in decoder.feed(received):
                    yield event

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def located(self) -> Endpoint:
        """Where the server is."""
        if self.endpoint is None:
            self._connect()
        assert self.endpoint is not None
        return self.endpoint

    def _connect(self) -> None:
        endpoint = self.endpoint
        if endpoint is None:
            endpoint = in_thread(self._resolve)
        with self._lock:
            if self._pool is None:
                self._headers = _headers(endpoint)
                self._pool, self.endpoint = _pool(endpoint), endpoint

    def _send(
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
        """Sends a request, with JSON or bytes or neither, and gives the head of its answer.

        The request is made here and not by httpx's client: that one looks for cookies, redirects and what to merge,
        which together costs as much again.
        """
        import httpx

        if self._pool is None:
            self._connect()
        own = {name.encode(): value.encode() for name, value in (headers or {}).items()}
        if body is not None:
            content = json.dumps(body).encode()
            own[b"content-type"] = b"application/json"
        all_headers = [*(pair for pair in self._headers if pair[0] not in own), *own.items()]
        limits = {"connect": CONNECT_WITHIN, "read": seconds, "write": seconds, "pool": seconds}
        request = httpx.Request(
            method,
            self._url(path),
            params=params,
            headers=all_headers,
            content=content,
            extensions={"timeout": limits},
        )
        if isinstance(self._pool, httpx.Client):
            return self._pool.send(request, stream=True)
        assert self._pool is not None, "the client was closed while it was in use"
        return self._pool.handle_request(request)

    def _url(self, path: str) -> httpx.URL:
        """The whole address. Kept, because taking one apart costs as much as all else that is done here."""
        import httpx

        url = self._urls.get(path)
        if url is None:
            assert self.endpoint is not None, "the address is known once there is a connection"
            if len(self._urls) >= MOST_URLS:
                self._urls.clear()
            url = self._urls[path] = httpx.URL(self.endpoint.url + path)
        return url


def _headers(endpoint: Endpoint) -> List[Tuple[bytes, bytes]]:
    own = {"authorization": f"Bearer {endpoint.token}", "user-agent": f"sandling-py/{__version__}"}
    own.update({"accept": "application/json", "host": urlsplit(endpoint.url).netloc.rpartition("@")[2]})
    return [(name.encode(), value.encode()) for name, value in own.items()]


def _pool(endpoint: Endpoint) -> Union[httpx.Client, httpx.BaseTransport]:
    import httpx

    parts = urlsplit(endpoint.url)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE)
    if parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        # The client knows the environment's proxies and certificates.
        return httpx.Client(limits=limits)
    # No proxy stands between this machine and itself, and certificates are loaded only where they are needed.
    if parts.scheme == "http":
        return to_loopback(limits, SOCKET_OPTIONS)
    return httpx.HTTPTransport(limits=limits, socket_options=SOCKET_OPTIONS)


def _refusal(answer: httpx.Response) -> Exception:
    try:
        body: Any = answer.json()
    except ValueError:
        body = answer.text
    return from_answer(answer.status_code, answer.headers, body)


def _lost(error: httpx.TransportError) -> ConnectionError:
    import httpx

    said = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return RequestTimeout(f"the server did not answer in time: {said}")
    return ConnectionError(f"the connection to the server failed: {said}")
