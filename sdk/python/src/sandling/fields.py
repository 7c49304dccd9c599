"""The data of a sandbox, as of the last answer of the server."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class SandboxFields:
    """The data of a sandbox. :meth:`Sandbox.refresh` updates it."""

    id: str = ""
    #: Unique in its workspace; :meth:`Sandbox.get` takes it, too.
    name: Optional[str] = None
    template: str = ""
    cpu: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    #: ``creating``, ``running``, ``paused``, ``hibernated``, ``failed`` or ``deleted``.
    status: str = "unknown"
    created_at: Optional[str] = None
    metadata: Dict[str, str]
    labels: Dict[str, str]
    #: Where commands and relative paths start. With ``None``, commands start at home and paths must be absolute.
    workdir: Optional[str] = None
    from_snapshot: Optional[str] = None
    boot_ms: Optional[int] = None
    #: How it was started, such as ``standby``, ``snapshot`` or ``fork``.
    boot_mode: Optional[str] = None
    #: Its address in its own network, the same for all sandboxes.
    guest_ip: Optional[str] = None
    persistent: bool = False
    ttl_seconds: Optional[int] = None
    idle_seconds: Optional[int] = None
    expires_at: Optional[str] = None
    workspace: Optional[str] = None
    #: What happens if its node of the fleet is lost: ``mode``, and ``point_at``, the moment that it would go back to.
    #: ``None`` if it would be lost.
    failover: Optional[Dict[str, Any]] = None
    #: The accelerator, and the layers of the jail that are in force.
    boundary: Dict[str, Any]

    def _take(self, data: Mapping[str, Any]) -> None:
        for name in SandboxFields.__annotations__:
            if data.get(name) is not None:
                setattr(self, name, data[name])
        for name in ("metadata", "labels", "boundary"):
            setattr(self, name, dict(data.get(name) or {}))

    def to_dict(self) -> Dict[str, Any]:
        """All fields as plain data."""
        return {name: getattr(self, name) for name in SandboxFields.__annotations__}


def refuse_other(sandbox: object, kind: Type[SandboxFields], taker: str) -> None:
    """Refuses a sandbox of the other client. ``taker`` is the blocking name of the function that got it."""
    if isinstance(sandbox, SandboxFields) and not isinstance(sandbox, kind):
        is_async = kind.__name__.startswith("Async")
        fits, other = (taker, f"Async{taker}") if is_async else (f"Async{taker}", taker)
        raise TypeError(f"{other} takes no {type(sandbox).__name__}; use {fits}")
