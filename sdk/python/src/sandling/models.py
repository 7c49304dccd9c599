"""The server's answers as plain data, for the blocking and the async client."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, TypedDict


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and its output."""

    stdout: str
    stderr: str
    #: As in a shell: the exit code, or 128 + the number of the signal.
    exit_code: int
    duration_ms: int = 0
    #: ``exited``, ``signalled``, ``timeout``, ``out_of_memory``, ``output_limit``, ``cpu_limit`` or ``disk_limit``.
    reason: str = "exited"
    signal: Optional[int] = None
    #: Bytes of output that are missing in ``stdout`` and ``stderr``.
    dropped_bytes: int = 0
    id: str = ""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.duration_ms / 1000

    @classmethod
    def from_wire(cls, data: Mapping[str, Any], stdout: str = "", stderr: str = "") -> ExecResult:
        return cls(
            stdout=data.get("stdout", stdout),
            stderr=data.get("stderr", stderr),
            exit_code=int(data["exit_code"]),
            duration_ms=int(data.get("duration_ms") or 0),
            reason=data.get("reason") or "exited",
            signal=data.get("signal"),
            dropped_bytes=int(data.get("dropped_bytes") or 0),
            id=data.get("id") or "",
        )


class Chunk(NamedTuple):
    """A piece of a command's output."""

    #: ``stdout`` or ``stderr``.
    stream: str
    text: str


@dataclass(frozen=True)
class Result:
    """One rich output of a cell, in one or more MIME types. Binary ones are in base64."""

    data: Dict[str, str]

    @property
    def text(self) -> Optional[str]:
        return self.data.get("text/plain")

    @property
    def png(self) -> Optional[str]:
        return self.data.get("image/png")

    @property
    def jpeg(self) -> Optional[str]:
        return self.data.get("image/jpeg")

    @property
    def svg(self) -> Optional[str]:
        return self.data.get("image/svg+xml")

    @property
    def chart(self) -> Optional[str]:
        """The picture, in the first available format."""
        return self.png or self.jpeg or self.svg

    @property
    def html(self) -> Optional[str]:
        return self.data.get("text/html")

    @property
    def markdown(self) -> Optional[str]:
        return self.data.get("text/markdown")

    @property
    def json(self) -> Any:
        """The parsed JSON value, or ``None``."""
        text = self.data.get("application/json")
        return None if text is None else json.loads(text)


@dataclass(frozen=True)
class Execution:
    """The output, results and error of one cell. An exception in the cell is data and is not raised here."""

    results: List[Result] = field(default_factory=list)
    stdout: str = ""
    stderr: str = ""
    #: The formatted traceback, or why the interpreter ended.
    error: Optional[str] = None
    #: 0 if the cell succeeded, otherwise 1. For a script, its exit code.
    exit_code: int = 0
    duration_ms: int = 0
    #: ``ok``, ``error``, ``interrupted``, ``out_of_memory``, ``output_limit`` or ``died``.
    status: str = "ok"
    #: Whether the interpreter ended. The context then has a new one, without variables.
    restarted: bool = False
    execution_count: int = 0
    dropped_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.duration_ms / 1000

    @classmethod
    def of_script(cls, result: ExecResult) -> Execution:
        """The result of a script, which has no rich results."""
        status = {"exited": "ok" if result.ok else "error", "signalled": "died"}.get(result.reason, result.reason)
        error = None if result.ok else result.stderr.strip() or f"the script ended with exit code {result.exit_code}"
        return cls(
            stdout=result.stdout,
            stderr=result.stderr,
            error=error,
            exit_code=result.exit_code,
            duration_ms=result.duration_ms,
            status=status,
            dropped_bytes=result.dropped_bytes,
        )

    @property
    def logs(self) -> Dict[str, str]:
        return {"stdout": self.stdout, "stderr": self.stderr}

    @property
    def text(self) -> Optional[str]:
        """The text of the first result that has one."""
        return next((result.text for result in self.results if result.text is not None), None)

    @property
    def png(self) -> Optional[str]:
        """The first PNG, in base64."""
        return next((result.png for result in self.results if result.png is not None), None)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Execution:
        exit_code = int(data.get("exit_code", data.get("exit", 0)))
        return cls(
            results=[Result({str(mime): str(value) for mime, value in item.items()}) for item in data["results"]],
            stdout=data.get("stdout", ""),
            stderr=data.get("stderr", ""),
            error=data.get("error") or None,
            exit_code=exit_code,
            duration_ms=int(data.get("duration_ms") or 0),
            status=data.get("status") or ("error" if exit_code else "ok"),
            restarted=bool(data.get("restarted")),
            execution_count=int(data.get("execution_count") or 0),
            dropped_bytes=int(data.get("dropped_bytes") or 0),
        )


@dataclass(frozen=True)
class FileInfo:
    """A file, directory or link in a sandbox."""

    name: str
    path: str
    is_dir: bool
    size: int = 0
    #: ``f`` for a file, ``d`` for a directory, ``l`` for a link, ``o`` for anything else.
    mode: str = ""
    #: Seconds since 1970.
    mtime: int = 0
    #: Permission bits in octal, such as ``0644``.
    permissions: str = ""
    uid: int = 0
    gid: int = 0
    #: The target of a link.
    target: Optional[str] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> FileInfo:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if data.get(name) is not None})


@dataclass(frozen=True)
class FileChange:
    """A change under a watched path."""

    path: str
    #: ``created``, ``modified``, ``removed``, ``renamed``, ``attributes`` or ``overflow``.
    kind: str


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox."""

    number: int
    time: str
    sandbox_id: str
    #: For example ``sandbox.created``, ``sandbox.paused`` or ``sandbox.ended``.
    type: str
    payload: Dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Event:
        return cls(data["number"], data["time"], data["sandbox_id"], data["type"], dict(data.get("payload") or {}))


@dataclass(frozen=True)
class GuestMetrics:
    """Metrics that the guest reports."""

    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    disk_total_bytes: int = 0
    disk_available_bytes: int = 0
    processes: int = 0
    cpu_ms: int = 0
    uptime_ms: int = 0


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses, measured on the host."""

    cpu_ms: int = 0
    #: Its own memory, plus its share of memory that it shares with others (Pss).
    memory_bytes: int = 0
    host_rss_bytes: int = 0
    disk_bytes: int = 0
    network_received_bytes: int = 0
    network_sent_bytes: int = 0
    uptime_seconds: int = 0
    host_cpu_percent: float = 0.0
    guest: Optional[GuestMetrics] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Metrics:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data and name != "guest"}
        guest = data.get("guest")
        if guest:
            guest = GuestMetrics(**{name: guest[name] for name in GuestMetrics.__dataclass_fields__ if name in guest})
        return cls(**known, guest=guest)


@dataclass(frozen=True)
class Preview:
    """Access to a port of a sandbox. Anybody with the URL can use the port until it expires."""

    #: A separate host name, so that absolute paths in a page work.
    url: str
    #: The same under a path of the server, for clients that cannot resolve ``*.localhost``.
    path_url: str
    token: str
    id: str
    port: int
    expires_at: str

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Preview:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class ExecInfo:
    """A command in a sandbox, running or ended."""

    id: str
    pid: int
    command: str
    started_at: str
    output_bytes: int
    #: ``running`` or ``exited``.
    status: str
    exit_code: Optional[int] = None
    reason: Optional[str] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> ExecInfo:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


@dataclass(frozen=True)
class Token:
    """An API token. ``token`` is the secret; only the answer to ``create`` has it."""

    prefix: str
    name: str
    created_at: str = ""
    scope: str = ""
    workspace: str = ""
    expires_at: Optional[str] = None
    last_used_at: Optional[str] = None
    token: Optional[str] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Token:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{"name": data.get("label", ""), **known})


@dataclass(frozen=True)
class TemplateBuild:
    """The build of a template."""

    id: str
    name: str = ""
    #: ``done`` and ``failed`` are final.
    status: str = ""
    error: Optional[str] = None
    started_at: Optional[str] = None
    ended_at: Optional[str] = None
    bytes: Optional[int] = None
    #: In a list of a fleet: the node that has it.
    node: Optional[str] = None

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    @property
    def is_failed(self) -> bool:
        return self.status == "failed"

    @property
    def is_terminal(self) -> bool:
        return self.is_done or self.is_failed

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> TemplateBuild:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


class Lifecycle(TypedDict):
    """How long a sandbox may live. 0 means no limit."""

    ttl_seconds: int
    idle_seconds: int
    persistent: bool
    expires_at: Optional[str]
    idle_for_seconds: int


class Promotion(TypedDict):
    """Which sibling won, and what happened to the others."""

    winner: str
    tree_id: str
    deleted: List[str]
    failures: Dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A saved moment that a sandbox can go back to."""

    number: int
    #: A checkpoint with a name is kept until the name is removed.
    name: Optional[str]
    at: str
    #: Why it was made: before an ``exec``, ``cell``, ``files`` or ``rewind``, or on ``request``.
    cause: str
    #: What was about to run or change, shortened.
    text: str
    #: The checkpoint before it.
    after: Optional[int]
    size_bytes: int = 0

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Checkpoint:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


class Timeline(List[Checkpoint]):
    """A sandbox's checkpoints, oldest first."""

    #: The checkpoint that the sandbox came from.
    current: Optional[int] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Timeline:
        timeline = cls(Checkpoint.from_wire(item) for item in data["checkpoints"])
        timeline.current = data.get("current")
        return timeline


@dataclass(frozen=True)
class FileState:
    """A file at one of two moments."""

    #: ``file``, ``directory``, ``symlink`` or ``other``.
    kind: str
    size: int
    #: Permission bits in octal, such as ``0644``.
    mode: str
    uid: int = 0
    gid: int = 0
    #: The target of a link.
    target: Optional[str] = None

    @classmethod
    def from_wire(cls, data: Optional[Mapping[str, Any]]) -> Optional[FileState]:
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in data.items() if name in known}) if data else None


@dataclass(frozen=True)
class FileDiff:
    """A file that differs between two moments."""

    path: str
    #: ``added``, ``changed`` or ``removed``.
    change: str
    before: Optional[FileState]
    after: Optional[FileState]
    #: The text diff, as in a patch.
    patch: Optional[str] = None
    #: Why there is no text diff: ``binary``, ``too_large``, ``special`` or ``unreadable``.
    no_patch: Optional[str] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> FileDiff:
        states = {side: FileState.from_wire(data[side]) for side in ("before", "after")}
        return cls(data["path"], data["change"], **states, patch=data.get("patch"), no_patch=data.get("no_patch"))


@dataclass(frozen=True)
class Diff:
    """What changed between two moments."""

    added: int
    changed: int
    removed: int
    #: Sorted by path. Paths are relative to the compared directory.
    files: List[FileDiff] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Diff:
        files = [FileDiff.from_wire(item) for item in data["files"]]
        return cls(data["added"], data["changed"], data["removed"], files)


class SnapshotInfo(TypedDict, total=False):
    """A saved machine. ``durability`` is ``local`` or ``durable``: whether it survives the loss of its node."""

    id: str
    sandbox_id: str
    template: str
    size_bytes: int
    created_at: str
    workspace: str
    durability: str


class VolumeInfo(TypedDict, total=False):
    """A named disk that outlives sandboxes."""

    name: str
    size_mb: int
    size_bytes: int
    created_at: str
