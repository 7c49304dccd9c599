"""A record of every run of a pool, for those who must be able to say what was run."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from os import PathLike
from typing import Any, Callable, Dict, Optional, Union


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@dataclass
class AuditRecord:
    """One run: who asked for what, in which sandbox, and what came of it."""

    #: ``run`` by a pool; whatever you call it in a record of your own.
    action: str
    #: What was run, whole, and how.
    input: Dict[str, Any]
    #: What came back, whole: not what a model or a page was shown of it.
    output: Dict[str, Any] = field(default_factory=dict)
    sandbox_id: str = ""
    #: For whom, in the caller's words.
    actor: Optional[str] = None
    #: ``ok``, ``failed``, ``timeout`` or ``error``.
    outcome: str = "ok"
    duration_ms: int = 0
    time: str = field(default_factory=_now)


Sink = Union[str, "PathLike[str]", Callable[[AuditRecord], Any]]


class AuditLog:
    """Keeps records: as lines of JSON in a file that only its owner can read, or by a function of yours."""

    def __init__(self, sink: Sink) -> None:
        self._lock = threading.Lock()
        self._keep = sink if callable(sink) else None
        self._path = None if callable(sink) else sink

    def write(self, record: AuditRecord) -> None:
        """A record that cannot be kept is an error: what is not recorded must not go unnoticed."""
        with self._lock:
            if self._keep is not None:
                self._keep(record)
            elif self._path is not None:
                self._append(json.dumps(asdict(record), ensure_ascii=False) + "\n")

    def _append(self, line: str) -> None:
        import os

        assert self._path is not None
        # One write of the whole line: several processes may share the file.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
