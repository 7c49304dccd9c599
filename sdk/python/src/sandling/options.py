"""Options of requests, and the JSON bodies made from them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Mapping, Optional, Protocol, Sequence, TypedDict, Union

from .networking import NetworkOptions

#: What a copy of a sandbox gets of its volumes: nothing, a read-only view, or its own copies.
OnVolumes = Literal["detach", "read_only", "clone"]

#: The default template.
DEFAULT_TEMPLATE = "code-interpreter"


class CancelEvent(Protocol):
    """Anything like a :class:`threading.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class VolumeMount:
    """A volume and its mount point."""

    name: str
    path: Optional[str] = None
    read_only: bool = False

    def to_wire(self) -> Dict[str, Any]:
        wire: Dict[str, Any] = {"name": self.name, "read_only": self.read_only}
        if self.path is not None:
            wire["mount"] = self.path
        return wire


class CreateOptions(TypedDict, total=False):
    """Options of a new sandbox. Missing ones come from the template and the server."""

    #: An OCI image instead of a template, such as ``python:3.12-slim``. The first create from it pulls the image.
    image: Optional[str]
    #: A name that is unique in the workspace.
    name: Optional[str]
    cpu: Optional[int]
    memory_mb: Optional[int]
    disk_mb: Optional[int]
    #: The maximum number of processes and threads.
    pids: Optional[int]
    #: Your own labels. :meth:`Sandbox.list` can filter by them.
    metadata: Optional[Mapping[str, str]]
    labels: Optional[Mapping[str, str]]
    #: Environment variables for every command in it.
    env: Optional[Mapping[str, str]]
    #: The TTL: how long it lives, even if this process dies.
    ttl_seconds: Optional[int]
    #: The idle timeout.
    idle_seconds: Optional[int]
    #: It has no TTL, and leaving the ``with`` block does not end it.
    persistent: Optional[bool]
    #: The ID or the name of a snapshot.
    from_snapshot: Optional[str]
    #: ``every-exec`` makes a checkpoint before each command, cell and change of files; see :meth:`Sandbox.rewind`.
    checkpoints: Optional[str]
    #: How many checkpoints without a name to keep; 20 by default.
    checkpoints_kept: Optional[int]
    #: ``snapshot``: if its node of the fleet is lost, it wakes on another one, where its last point was made.
    failover: Optional[str]
    #: What it may reach, such as ``{"allow": ["pypi"], "secrets": ["API_KEY"], "limits": {"connections": 20}}``. By
    #: default the template's or the workspace's default applies, otherwise it reaches nothing.
    network: Optional[Union[NetworkOptions, Mapping[str, Any]]]
    volumes: Optional[Sequence[Union[VolumeMount, Mapping[str, Any]]]]
    #: Code to run in the same request, or ``{"code": ..., "language": "node", "timeout_seconds": 5}``.
    #: :meth:`Sandbox.first_run` returns its result.
    run: Optional[Union[str, Mapping[str, Any]]]
    #: Set it to stop waiting for capacity.
    cancel: Optional[CancelEvent]


class ExecOptions(TypedDict, total=False):
    """Options of a command."""

    cwd: Optional[str]
    env: Optional[Mapping[str, str]]
    #: A name or a number; root by default.
    user: Optional[str]
    #: The standard input. Bytes must be UTF-8.
    stdin: Optional[Union[str, bytes]]
    #: A command with the same ID never starts twice.
    id: Optional[str]
    #: The output limit in bytes.
    output_limit: Optional[int]
    #: Seconds of CPU time that the sandbox may use while the command runs.
    cpu_seconds: Optional[float]
    #: How much more of its disk the sandbox may use while the command runs.
    disk_limit_mb: Optional[int]
    #: At the limit: ``kill`` the command, or ``keep_tail``, which drops the oldest output.
    on_limit: Optional[str]


def create_body(template: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    refuse_unknown(options, CreateOptions, "create")
    body = {name: value for name, value in options.items() if value is not None and name != "cancel"}
    if "image" not in body:
        body["template"] = template
    elif template != DEFAULT_TEMPLATE:
        raise TypeError(f"a sandbox comes from a template or an image, not from both: {template!r}, {body['image']!r}")
    if "volumes" in body:
        body["volumes"] = [_volume(volume) for volume in body["volumes"]]
    if "run" in body:
        run = body["run"]
        body["run"] = {"code": run} if isinstance(run, str) else dict(run)
    return body


def _volume(volume: Union[VolumeMount, Mapping[str, Any]]) -> Dict[str, Any]:
    if isinstance(volume, VolumeMount):
        return volume.to_wire()
    if not isinstance(volume, Mapping) or "name" not in volume:
        wanted = 'volume.mount("/data"), or {"name": "notes", "path": "/data"}'
        raise TypeError(f"volumes takes entries such as {wanted}, not {volume!r}")
    read_only = volume.get("read_only", volume.get("readOnly", False))
    path = volume.get("mount", volume.get("path"))
    return VolumeMount(str(volume["name"]), path, bool(read_only)).to_wire()


def exec_body(
    command: Union[str, Sequence[str]], timeout_seconds: Optional[float], options: Mapping[str, Any]
) -> Dict[str, Any]:
    """A string runs in the shell. A list is a program and its arguments, without a shell."""
    program: Dict[str, Any] = {"cmd": command} if isinstance(command, str) else {"args": list(command)}
    return _run_body(program, timeout_seconds, options)


def code_body(code: str, language: str, timeout_seconds: Optional[float], options: Mapping[str, Any]) -> Dict[str, Any]:
    return _run_body({"code": code, "language": language}, timeout_seconds, options)


#: Options that only a process of its own can have.
_OF_A_SCRIPT = ("cwd", "user", "stdin", "id", "on_limit", "cpu_seconds", "disk_limit_mb")
_SHELLS = ("bash", "shell", "sh")


def is_script(language: str, fresh: bool) -> bool:
    """Whether code runs in a process of its own. A shell has no live interpreter."""
    return fresh or language in _SHELLS


def live_code_body(
    code: str, language: str, timeout_seconds: Optional[float], options: Mapping[str, Any]
) -> Dict[str, Any]:
    """Code for the default interpreter, which keeps its variables."""
    for name in _OF_A_SCRIPT:
        if options.get(name) is not None:
            raise TypeError(
                f"run_code() takes {name!r} only with fresh=True, because code that keeps its variables runs in an "
                "interpreter that is already there"
            )
    return _run_body({"code": code, "language": language}, timeout_seconds, options)


def _run_body(program: Dict[str, Any], timeout_seconds: Optional[float], options: Mapping[str, Any]) -> Dict[str, Any]:
    if options:
        refuse_unknown(options, ExecOptions, "exec")
        program.update((name, value) for name, value in options.items() if value is not None)
    if "stdin" in program:
        program["stdin"] = _text(program["stdin"])
    if timeout_seconds is not None:
        program["timeout_seconds"] = seconds_of(timeout_seconds)
    return program


def _text(stdin: Union[str, bytes]) -> str:
    if isinstance(stdin, str):
        return stdin
    if not isinstance(stdin, bytes):
        raise TypeError(f"stdin takes str, or bytes that are UTF-8, not {type(stdin).__name__}")
    try:
        return stdin.decode()
    except UnicodeDecodeError as error:
        raise ValueError("stdin takes text; write other bytes to a file, and read that in the command") from error


def seconds_of(timeout_seconds: float) -> float:
    if not isinstance(timeout_seconds, (int, float)):
        raise TypeError(f"timeout_seconds takes a number of seconds, not {timeout_seconds!r}")
    return timeout_seconds


def one_timeout(timeout: Optional[float], timeout_seconds: Optional[float]) -> Optional[float]:
    """The timeout, which has two names."""
    if timeout is not None and timeout_seconds is not None and timeout != timeout_seconds:
        raise TypeError("run() got both timeout and timeout_seconds, which are the same; give one of them")
    return timeout_seconds if timeout is None else timeout


def refuse_unknown(options: Mapping[str, Any], kind: Any, verb: str) -> None:
    unknown: List[str] = sorted(set(options) - set(kind.__annotations__))
    if unknown:
        raise TypeError(f"{verb}() got an unexpected keyword argument {unknown[0]!r}")
