"""A WebSocket to a route of a sandbox, on a connection of httpx."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, List, Optional, Union

from ..errors import ConfigError, ConnectionError, RequestTimeout, ServerError
from .colour import Lock

if TYPE_CHECKING:
    from ..audit import Recording
    from .sandbox import AsyncSandbox

BLOCK = 65536
WRITE_WITHIN = 60.0


class AsyncWebSocket:
    """Messages in both directions: bytes and text. One task may receive while others send."""

    def __init__(self, sandbox: AsyncSandbox, path: str) -> None:
        self._sandbox = sandbox
        self._path = path
        self._stack = AsyncExitStack()
        self._sending = Lock()
        self._stream: Any = None
        self._protocol: Any = None
        self._partial: List[Union[bytes, str]] = []
        #: Whether one of both sides has closed it.
        self.is_closed = False
        self.recording: Optional[Recording] = None

    async def open(self) -> None:
        try:
            from wsproto.connection import Connection, ConnectionType
            from wsproto.utilities import generate_nonce
        except ImportError as error:
            raise ConfigError("a terminal needs wsproto: pip install 'sandling[terminal]'") from error
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": generate_nonce().decode(),
        }
        answer = await self._stack.enter_async_context(
            self._sandbox._stream("GET", self._path, headers=headers, silence=None)
        )
        if answer.status_code != 101:
            await self._stack.aclose()
            raise ServerError(f"the server did not open a WebSocket: it answered {answer.status_code}")
        self._stream = answer.extensions["network_stream"]
        self.recording = answer.extensions.get("recording")
        self._protocol = Connection(ConnectionType.CLIENT)

    async def send(self, message: Union[bytes, str]) -> None:
        from wsproto.events import BytesMessage, TextMessage

        await self._send(TextMessage(data=message) if isinstance(message, str) else BytesMessage(data=message))

    async def receive(self, timeout: Optional[float] = None) -> List[Union[bytes, str]]:
        """The messages that arrive next. None may be complete yet, and at the end there are none.

        :raises RequestTimeout: nothing arrived for ``timeout`` seconds.
        """
        import httpcore

        try:
            received = await self._stream.read(BLOCK, timeout)
        except httpcore.ReadTimeout as error:
            raise RequestTimeout("the WebSocket received nothing in time") from error
        except (httpcore.NetworkError, OSError) as error:
            raise ConnectionError(f"the WebSocket is gone: {error}") from error
        if not received:
            self.is_closed = True
            return []
        self._protocol.receive_data(received)
        messages: List[Union[bytes, str]] = []
        for event in self._protocol.events():
            await self._take(event, messages)
        return messages

    async def close(self) -> None:
        from wsproto.events import CloseConnection

        if self._stream is not None and not self.is_closed:
            self.is_closed = True
            with suppress(ConnectionError):
                await self._send(CloseConnection(code=1000))
        self._stream = None
        await self._stack.aclose()

    async def _take(self, event: Any, messages: List[Union[bytes, str]]) -> None:
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

        if isinstance(event, (BytesMessage, TextMessage)):
            # A long message arrives in pieces.
            self._partial.append(event.data if isinstance(event, TextMessage) else bytes(event.data))
            if event.message_finished:
                pieces, self._partial = self._partial, []
                messages.append(pieces[0][:0].join(pieces))  # type: ignore[arg-type]  # all of one kind
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            self.is_closed = True

    async def _send(self, event: Any) -> None:
        import httpcore

        async with self._sending:
            try:
                await self._stream.write(self._protocol.send(event), WRITE_WITHIN)
            except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
                raise ConnectionError(f"the WebSocket is gone: {error}") from error
