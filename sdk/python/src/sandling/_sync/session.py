# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""A command with live input, over a WebSocket. The parts of the SDK that other libraries plug into use it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from ..errors import ConnectionError, NotFoundError, from_answer
from .colour import Source
from .exec import Exec
from .websocket import WebSocket

if TYPE_CHECKING:
    from .sandbox import Sandbox

#: The first byte of a message with output says which output it is.
STDERR = 2
#: The server sends something every twenty seconds.
SILENCE = 90.0
#: Longer input is sent in several messages.
LONGEST_INPUT = 64 * 1024


class ExecSession:
    """A running command. Iterate over it for its output: pairs of a stream's name and bytes."""

    def __init__(self, sandbox: Sandbox, start: Dict[str, Any]) -> None:
        self._sandbox = sandbox
        self._start = start
        self._socket = WebSocket(sandbox, "/exec/session")
        self._received: List[Union[bytes, str]] = []
        #: The ID of the command.
        self.id = ""
        #: How the command ended; ``None`` while it runs.
        self.exit_code: Optional[int] = None

    def open(self) -> None:
        """Starts the command."""
        self._socket.open()
        try:
            self._socket.send(json.dumps(self._start))
            while not self.id:
                message = self._next()
                if message is None:
                    raise ConnectionError("the connection ended before the command started")
                self._told(message)
        except BaseException:
            self._socket.close()
            raise

    def write(self, data: bytes) -> None:
        """Sends input."""
        for begin in range(0, len(data), LONGEST_INPUT):
            self._socket.send(data[begin : begin + LONGEST_INPUT])

    def end_input(self) -> None:
        self._socket.send(json.dumps({"eof": True}))

    def kill(self) -> None:
        """Ends the command. It may have ended already."""
        try:
            Exec(self._sandbox, self.id).kill()
        except NotFoundError:
            return

    def __iter__(self) -> Source[Tuple[str, bytes]]:
        return self._output()

    def _output(self) -> Source[Tuple[str, bytes]]:
        try:
            while self.exit_code is None:
                message = self._next()
                if message is None:
                    raise ConnectionError("the connection ended while the command ran")
                if isinstance(message, bytes):
                    yield "stderr" if message[0] == STDERR else "stdout", message[1:]
                else:
                    self._told(message)
        finally:
            self._socket.close()

    def _next(self) -> Union[bytes, str, None]:
        while not self._received and not self._socket.is_closed:
            self._received += self._socket.receive(SILENCE)
        return self._received.pop(0) if self._received else None

    def _told(self, message: Union[bytes, str]) -> None:
        said = json.loads(message)
        if "error" in said:
            raise from_answer(said.get("status", 500), {}, said)
        if "start" in said:
            self.id = said["start"]["id"]
        if "exit" in said:
            self.exit_code = int(said["exit"]["exit_code"])
