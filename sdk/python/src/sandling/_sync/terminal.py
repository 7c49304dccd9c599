# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A terminal in a sandbox, over a WebSocket."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, List, Optional
from urllib.parse import urlencode

from ..errors import ConnectionError, SandlingError
from .colour import Source
from .websocket import WebSocket

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Terminal:
    """A terminal. Bytes are not converted. Closing it sends a hangup to its shell."""

    def __init__(self, sandbox: Sandbox, *, rows: int, cols: int, cmd: Optional[str], user: Optional[str]) -> None:
        wanted = {"rows": rows, "cols": cols, "cmd": cmd, "user": user}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        self._socket = WebSocket(sandbox, f"/exec/pty?{query}")
        self._received: List[bytes] = []
        #: How the shell ended; ``None`` while it runs.
        self.exit_code: Optional[int] = None

    def __enter__(self) -> Terminal:
        self._socket.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes | str) -> None:
        """Sends input."""
        if self._socket.recording is not None:
            self._socket.recording.shown("typed", data)
        self._socket.send(data.encode() if isinstance(data, str) else data)

    def resize(self, rows: int, cols: int) -> None:
        self._socket.send(json.dumps({"resize": {"rows": rows, "cols": cols}}))

    def read(self, timeout: Optional[float] = None) -> bytes:
        """The next output; empty at the end.

        :raises RequestTimeout: there was no output for ``timeout`` seconds.
        """
        # Keep-alive messages are not output.
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._received and not self._socket.is_closed:
            self._hear(None if deadline is None else max(0.001, deadline - time.monotonic()))
        data, self._received = b"".join(self._received), []
        return data

    def read_until(self, text: bytes | str, timeout: Optional[float] = None) -> bytes:
        """The output up to and including ``text``. Output after it is kept for the next read.

        :raises RequestTimeout: it did not appear within ``timeout`` seconds.
        """
        wanted = text.encode() if isinstance(text, str) else text
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = b""
        try:
            while wanted not in seen:
                more = self.read(None if deadline is None else max(0.001, deadline - time.monotonic()))
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

    def __iter__(self) -> Source[bytes]:
        return self._all()

    def _all(self) -> Source[bytes]:
        while True:
            data = self.read()
            if not data:
                return
            yield data

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()

    def _hear(self, timeout: Optional[float]) -> None:
        recording = self._socket.recording
        for message in self._socket.receive(timeout):
            if isinstance(message, bytes):
                self._received.append(message)
                if recording is not None:
                    recording.shown("shown", message)
            else:
                self.exit_code = json.loads(message).get("exit", self.exit_code)
                if recording is not None:
                    recording.record.output.update(exit_code=self.exit_code)
