"""Server-sent events, from bytes.

Does not use httpx's line splitting, which also splits at U+2028 and similar characters that a build log may hold.
"""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple


class ServerEvent(NamedTuple):
    name: str
    data: str

    def json(self) -> Any:
        return json.loads(self.data)


class EventDecoder:
    """Takes bytes as they arrive and returns the events that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: List[str] = []

    def feed(self, received: bytes) -> List[ServerEvent]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        events: List[ServerEvent] = []
        for line in lines:
            self._take(line.rstrip(b"\r").decode("utf-8", "replace"), events)
        return events

    def _take(self, line: str, events: List[ServerEvent]) -> None:
        if not line:
            if self._data:
                events.append(ServerEvent(self._name or "message", "\n".join(self._data)))
            self._name, self._data = "", []
            return
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
