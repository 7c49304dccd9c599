# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""The machine as a whole: it ends, pauses, sleeps, is saved and copied."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, TypeVar, Union, overload

from ..errors import NotFoundError
from ..models import Checkpoint, Diff, Lifecycle, Promotion, Timeline
from ..options import OnVolumes
from .base import SandboxBase

if TYPE_CHECKING:
    from ..exploring import Candidate, ExploreResult

M = TypeVar("M", bound="Machine")

#: Saving and restoring a whole machine takes longer than an ordinary request may.
MACHINE_WITHIN = 300.0


class Machine(SandboxBase):
    """What can be done with a sandbox's machine."""

    def kill(self) -> None:
        """Ends it."""
        self._request("DELETE", "")
        self.status = "deleted"

    def close(self) -> None:
        """Ends it unless it is persistent. One that has ended already is no error."""
        if self.id and self.status != "deleted" and not self.persistent:
            with suppress(NotFoundError):
                self.kill()
            self.status = "deleted"

    def pause(self) -> None:
        """Stops its virtual CPUs; its memory stays."""
        self._request("POST", "/pause")
        self.status = "paused"

    def resume(self) -> None:
        self._request("POST", "/resume")
        self.status = "running"

    def hibernate(self) -> None:
        """Saves the whole machine to disk and holds no memory. The next request that needs it wakes it."""
        self._request("POST", "/hibernate", timeout=MACHINE_WITHIN)
        self.status = "hibernated"

    def wake(self) -> None:
        """Wakes it from hibernation. One that is awake stays so."""
        self._request("POST", "/wake", timeout=MACHINE_WITHIN)
        self.status = "running"

    def snapshot(self, *, volumes: Optional[OnVolumes] = None) -> str:
        """Saves memory, disk and devices as one; it goes on. The id is good for ``create(from_snapshot=...)``.

        If it has volumes, ``volumes`` says what becomes of them in what is made of the snapshot.
        """
        body = {"volumes": volumes} if volumes else None
        data = self._request("POST", "/snapshots", body=body, timeout=MACHINE_WITHIN)
        return str(data["id"])

    @overload
    def fork(
        self: M,
        count: None = None,
        *,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> M: ...

    @overload
    def fork(
        self: M,
        count: int,
        *,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> List[M]: ...

    def fork(
        self: M,
        count: Optional[int] = None,
        *,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> Union[M, List[M]]:
        """A copy of the whole machine, with its processes and variables; with ``count``, a list of that many.

        If it has volumes, ``volumes`` says what the copies do with them. They have its network policy, and its secrets
        only with ``inherit_secrets``.
        """
        if count is not None:
            return self.fork_tree(count, metadata, volumes=volumes, inherit_secrets=inherit_secrets)
        data = self.client._make(self._path("/fork"), _wish(metadata, volumes, inherit_secrets) or None)
        return self._child(data["sandbox"] if "sandbox" in data else (data.get("children") or [data])[0])

    def fork_tree(
        self: M,
        count: int,
        metadata: Optional[Dict[str, str]] = None,
        *,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> List[M]:
        """Copies that know that they are siblings, for :meth:`promote`. The list is shorter if some could not start."""
        body: Dict[str, Any] = {"count": count, **_wish(metadata, volumes, inherit_secrets)}
        data = self.client._make(self._path("/fork-tree"), body)
        children = data if isinstance(data, list) else data["children"]
        return [self._child(child) for child in children]

    def _child(self: M, data: Dict[str, Any]) -> M:
        child = type(self)._of(self.client, {"status": "running", "template": self.template, **data})
        child.metadata.setdefault("fork_parent_id", self.id)
        return child

    def promote(self, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Promotion:
        """Makes this child a sandbox in its own right; with ``cleanup_siblings`` the others of its tree are ended."""
        body: Dict[str, Any] = {"cleanup_siblings": cleanup_siblings, **({"tree_id": tree_id} if tree_id else {})}
        promotion: Promotion = self._request("POST", "/promote", body=body, timeout=MACHINE_WITHIN)
        return promotion

    def explore(self: M, candidates: Sequence[Union[Candidate, str]], **options: Any) -> ExploreResult[M]:
        """Tries every candidate in a fork of its own and keeps the best; see :func:`sandling.explore`."""
        from .explore import explore

        return explore(self, candidates, **options)  # type: ignore[type-var]

    def timeline(self) -> Timeline:
        """Where it can go back to, oldest first."""
        return Timeline.from_wire(self._request("GET", "/timeline", timeout=MACHINE_WITHIN))

    def checkpoint(self, name: Optional[str] = None) -> Checkpoint:
        """Makes a checkpoint of this moment; one with a name is kept."""
        body = {"name": name} if name else {}
        data = self._request("POST", "/checkpoints", body=body, timeout=MACHINE_WITHIN)
        return Checkpoint.from_wire(data)

    def name_checkpoint(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Gives a checkpoint a name, which keeps it, or takes its name away."""
        data = self._request("PATCH", f"/checkpoints/{checkpoint}", body={"name": name}, timeout=MACHINE_WITHIN)
        return Checkpoint.from_wire(data)

    def rewind(self, to: Union[int, str]) -> Optional[int]:
        """Puts it back to a checkpoint, by number or name: memory, disk, processes and variables are those of then.

        Where it was becomes a checkpoint, too; its number is what is returned, to take the rewind back.
        """
        data = self._request("POST", "/rewind", body={"to": to}, timeout=MACHINE_WITHIN)
        self.status = "running"
        was: Optional[int] = data["was"]
        return was

    def diff(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> Diff:
        """What changed: files that were added, changed and removed, with the text diff.

        :param since: a checkpoint's number or name, ``now``, a sandbox's id, ``SANDBOX@CHECKPOINT`` or a snapshot.
        :param to: the same.
        :param path: the directory that is compared; paths in the answer start there.
        """
        params = {"from": str(since), "to": str(to), "path": path}
        return Diff.from_wire(self._request("GET", "/diff", params=params, timeout=MACHINE_WITHIN))

    def diff_patch(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> str:
        """The same as a patch, for ``git apply`` or ``patch -p1``."""
        params = {"from": str(since), "to": str(to), "path": path, "format": "patch"}
        return (self._fetch("GET", "/diff", params=params, timeout=MACHINE_WITHIN)).text

    def diff_tar(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> bytes:
        """What was added and changed, as a tar."""
        params = {"from": str(since), "to": str(to), "path": path, "format": "tar"}
        return (self._fetch("GET", "/diff", params=params, timeout=MACHINE_WITHIN)).content

    def lifecycle(self) -> Lifecycle:
        """How long it may live."""
        return self._lifecycle("GET", None)

    def set_ttl(self, seconds: int) -> Lifecycle:
        """Lets it live so long from now; 0 is without limit."""
        return self._lifecycle("PATCH", {"ttl_seconds": seconds})

    def set_idle(self, seconds: int) -> Lifecycle:
        """Lets it be unused so long; 0 is without limit."""
        return self._lifecycle("PATCH", {"idle_seconds": seconds})

    def set_persistent(self, persistent: bool) -> Lifecycle:
        return self._lifecycle("PATCH", {"persistent": persistent})

    def _lifecycle(self, method: str, body: Optional[Dict[str, Any]]) -> Lifecycle:
        told: Lifecycle = self._request(method, "/lifecycle", body=body)
        self.persistent = told["persistent"]
        return told


def _wish(metadata: Optional[Dict[str, str]], volumes: Optional[OnVolumes], inherit_secrets: bool) -> Dict[str, Any]:
    wanted = {"metadata": metadata, "volumes": volumes, "inherit_secrets": inherit_secrets}
    return {name: value for name, value in wanted.items() if value}
