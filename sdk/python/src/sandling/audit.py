"""An audit log of everything that is done in the machines of a pool."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Mapping, Optional, Union
from urllib.parse import parse_qsl

from ._sse import ServerEvent
from .errors import SandboxTimeout, WithOutput


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@dataclass
class AuditRecord:
    """One action: who asked for what, in which sandbox, and the result."""

    #: ``run`` for a pool's run, a request such as ``POST /exec`` for a leased machine, or a name of your choice.
    action: str
    #: The complete input, and how it ran.
    input: Dict[str, Any]
    #: The complete output, not the shortened one that a model or a page shows.
    output: Dict[str, Any] = field(default_factory=dict)
    sandbox_id: str = ""
    #: The user, as the caller names them.
    actor: Optional[str] = None
    #: ``ok``, ``failed``, ``timeout`` or ``error``; ``left`` if nobody read the result to its end.
    outcome: str = "ok"
    duration_ms: int = 0
    time: str = field(default_factory=_now)


Sink = Union[str, "os.PathLike[str]", Callable[[AuditRecord], Any]]


class AuditLog:
    """Writes records as lines of JSON to a file that only its owner can read, or passes them to your function."""

    def __init__(self, sink: Sink) -> None:
        self._lock = threading.Lock()
        self._keep = sink if callable(sink) else None
        self._path = None if callable(sink) else sink

    def write(self, record: AuditRecord) -> None:
        """Writes a record. A failure raises, because a missing record must not go unnoticed."""
        with self._lock:
            if self._keep is not None:
                self._keep(record)
            elif self._path is not None:
                self._append(json.dumps(asdict(record), ensure_ascii=False) + "\n")

    def _append(self, line: str) -> None:
        assert self._path is not None
        # Writes the whole line at once, because several processes may share the file.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # JSON can escape lone surrogates; UTF-8 cannot encode them.
            os.write(descriptor, line.encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


_SANDBOXES = "/v1/sandboxes/"


class Recording:
    """A running request to a machine. It is recorded when it ends, whatever the result."""

    def __init__(self, audit: AuditLog, actor: Optional[str], method: str, path: str, more: Mapping[str, Any]) -> None:
        place, _, query = path.partition("?")
        sandbox_id, _, rest = (
            place[len(_SANDBOXES) :].partition("/") if place.startswith(_SANDBOXES) else ("", "", place)
        )
        asked = {**dict(parse_qsl(query)), **(more.get("params") or {}), **_without_values(more.get("body") or {})}
        asked.update({name: value for name, value in (more.get("headers") or {}).items() if name == "range"})
        if isinstance(more.get("content"), bytes):
            asked.update(_told(more["content"]))
        self.record = AuditRecord(f"{method} /{rest.lstrip('/')}", asked, sandbox_id=sandbox_id, actor=actor)
        self._audit = audit
        self._started = time.monotonic()
        self._texts: Dict[str, List[str]] = defaultdict(list)
        self._digest = hashlib.sha256()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, _: Any, error: Optional[BaseException], __: Any) -> None:
        record, output = self.record, self.record.output
        output.update({name: "".join(pieces) for name, pieces in self._texts.items()})
        if isinstance(error, GeneratorExit) and "exit_code" not in output:
            record.outcome = "left"
        elif error is None or isinstance(error, GeneratorExit):
            record.outcome = _judged(output)
        else:
            record.outcome = "timeout" if isinstance(error, SandboxTimeout) else "error"
            output["error"] = str(error) or type(error).__name__
            if isinstance(error, WithOutput):
                output.update(stdout=error.stdout, stderr=error.stderr)
        record.duration_ms = round((time.monotonic() - self._started) * 1000)
        self._audit.write(record)

    def answered(self, kind: str, content: bytes) -> None:
        """Takes the complete answer."""
        if not kind.startswith("application/json"):
            self.record.output.update(_told(content))
        elif content:
            answer = json.loads(content)
            self.record.output.update(answer if isinstance(answer, dict) else {"answer": answer})

    def heard(self, event: ServerEvent) -> None:
        """Takes an event of a stream. For streams that are not a command's, only the last event is recorded."""
        data = event.json()
        if event.name in ("stdout", "stderr"):
            self._texts[event.name].append(data["chunk"])
        else:
            self.record.output.update(data)

    def shown(self, name: str, data: Union[bytes, str]) -> None:
        """Takes bytes that went over a terminal in either direction."""
        self._texts[name].append(data if isinstance(data, str) else data.decode("utf-8", "replace"))

    def passed(self, where: Dict[str, Any], block: bytes) -> None:
        """Takes a part of a streamed file, which may be too large for memory and for a record."""
        self._digest.update(block)
        where["size"] = where.get("size", 0) + len(block)
        where["sha256"] = self._digest.hexdigest()


def _without_values(body: Mapping[str, Any]) -> Dict[str, Any]:
    """Removes the values of the environment, because they may be secrets."""
    return {name: sorted(value) if name == "env" else value for name, value in body.items()}


def _told(content: bytes) -> Dict[str, str]:
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(content).decode()}


def _judged(output: Mapping[str, Any]) -> str:
    if output.get("reason") == "timeout":
        return "timeout"
    return "failed" if output.get("error") or output.get("exit_code") else "ok"
