"""A terminal in a sandbox, over a WebSocket on a connection of httpx."""

from __future__ import annotations

import json
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, List, Optional
from urllib.parse import urlencode

from ..errors import ConfigError, ConnectionError, RequestTimeout, SandlingError, ServerError
from .colour import Source

if TYPE_CHECKING:
    from ..audit import Recording
    from .sandbox import AsyncSandbox

BLOCK = 65536
WRITE_WITHIN = 60.0


class AsyncTerminal:
    """A terminal. Bytes are not converted. Closing it sends a hangup to its shell."""

    def __init__(self, sandbox: AsyncSandbox, *, rows: int, cols: int, cmd: Optional[str], user: Optional[str]) -> None:
        wanted = {"rows": rows, "cols": cols, "cmd": cmd, "user": user}
        self._query = urlencode({name: value for name, value in wanted.items() if value is not None})
        self._sandbox = sandbox
        self._stack = AsyncExitStack()
        self._socket: Any = None
        self._recording: Optional[Recording] = None
        self._protocol: Any = None
        self._received: List[bytes] = []
        self._partial = ""
        self._closed = False
        #: How the shell ended; ``None`` while it runs.
        self.exit_code: Optional[int] = None

    async def __aenter__(self) -> AsyncTerminal:
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
        path = f"/exec/pty?{self._query}"
        answer = await self._stack.enter_async_context(
            self._sandbox._stream("GET", path, headers=headers, silence=None)
        )
        if answer.status_code != 101:
            await self._stack.aclose()
            raise ServerError(f"the server did not open a terminal: it answered {answer.status_code}")
        self._socket = answer.extensions["network_stream"]
        self._recording = answer.extensions.get("recording")
        self._protocol = Connection(ConnectionType.CLIENT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, data: bytes | str) -> None:
        """Sends input."""
        from wsproto.events import BytesMessage

        if self._recording is not None:
            self._recording.shown("typed", data)
        await self._send(BytesMessage(data=data.encode() if isinstance(data, str) else data))

    async def resize(self, rows: int, cols: int) -> None:
        from wsproto.events import TextMessage

        await self._send(TextMessage(data=json.dumps({"resize": {"rows": rows, "cols": cols}})))

    async def read(self, timeout: Optional[float] = None) -> bytes:
        """The next output; empty at the end.

        :raises RequestTimeout: there was no output for ``timeout`` seconds.
        """
        # Keep-alive messages are not output.
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._received and not self._closed:
            await self._hear(None if deadline is None else max(0.001, deadline - time.monotonic()))
        data, self._received = b"".join(self._received), []
        return data

    async def read_until(self, text: bytes | str, timeout: Optional[float] = None) -> bytes:
        """The output up to and including ``text``. Output after it is kept for the next read.

        :raises RequestTimeout: it did not appear within ``timeout`` seconds.
        """
        wanted = text.encode() if isinstance(text, str) else text
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = b""
        try:
            while wanted not in seen:
                more = await self.read(None if deadline is None else max(0.001, deadline - time.monotonic()))
                if not more:
                    raise ConnectionError(f"the terminal ended before it showed {text!r}")
                seen += more
        except SandlingError:
            # The next read returns the output that arrived.
            if seen:
                self._received.insert(0, seen)
            raise
        end = seen.index(wanted) + len(wanted)
        if seen[end:]:
            self._received.insert(0, seen[end:])
        return seen[:end]

    def __aiter__(self) -> Source[bytes]:
        return self._all()

    async def _all(self) -> Source[bytes]:
        while True:
            data = await self.read()
            if not data:
                return
            yield data

    async def close(self) -> None:
        """Hangs up."""
        from wsproto.events import CloseConnection

        if self._socket is not None and not self._closed:
            self._closed = True
            with suppress(ConnectionError):
                await self._send(CloseConnection(code=1000))
        self._socket = None
        await self._stack.aclose()

    async def _send(self, event: Any) -> None:
        import httpcore

        try:
            await self._socket.write(self._protocol.send(event), WRITE_WITHIN)
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
            raise ConnectionError(f"the terminal is gone: {error}") from error

    async def _hear(self, timeout: Optional[float]) -> None:
        import httpcore

        try:
            received = await self._socket.read(BLOCK, timeout)
        except httpcore.ReadTimeout as error:
            raise RequestTimeout("the terminal did not show the text in time") from error
        except (httpcore.NetworkError, OSError) as error:
            raise ConnectionError(f"the terminal is gone: {error}") from error
        if not received:
            self._closed = True
            return
        self._protocol.receive_data(received)
        for event in self._protocol.events():
            await self._take(event)

    async def _take(self, event: Any) -> None:
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

        if isinstance(event, BytesMessage):
            self._received.append(bytes(event.data))
            if self._recording is not None:
                self._recording.shown("shown", self._received[-1])
        elif isinstance(event, TextMessage):
            self._partial += event.data
            if event.message_finished:
                said, self._partial = json.loads(self._partial), ""
                self.exit_code = said.get("exit", self.exit_code)
                if self._recording is not None:
                    self._recording.record.output.update(exit_code=self.exit_code)
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            self._closed = True
