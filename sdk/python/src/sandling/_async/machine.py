"""Operations on the whole machine: end, pause, hibernate, save and copy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, TypeVar, Union, overload

from ..errors import NotFoundError
from ..models import Checkpoint, Diff, Lifecycle, Promotion, Timeline
from ..options import OnVolumes
from .base import AsyncSandboxBase

if TYPE_CHECKING:
    from ..exploring import Candidate, ExploreResult

M = TypeVar("M", bound="AsyncMachine")

#: Saving and restoring a machine may take longer than other requests.
MACHINE_WITHIN = 300.0


class AsyncMachine(AsyncSandboxBase):
    """Operations on the machine of a sandbox."""

    async def kill(self) -> None:
        """Ends the sandbox."""
        await self._request("DELETE", "")
        self.status = "deleted"

    async def close(self) -> None:
        """Ends the sandbox unless it is persistent. It may have ended already."""
        if self.id and self.status != "deleted" and not self.persistent:
            with suppress(NotFoundError):
                await self.kill()
            self.status = "deleted"

    async def pause(self) -> None:
        """Stops its virtual CPUs. Its memory stays."""
        await self._request("POST", "/pause")
        self.status = "paused"

    async def resume(self) -> None:
        await self._request("POST", "/resume")
        self.status = "running"

    async def hibernate(self, *, keep_memory: bool = True) -> None:
        """Saves the machine to disk and frees its memory. The next request that needs it wakes it.

        Without ``keep_memory``, only its disk is saved: it boots when it wakes, and its processes are gone.
        """
        body = None if keep_memory else {"keep_memory": False}
        await self._request("POST", "/hibernate", body=body, timeout=MACHINE_WITHIN)
        self.status = "hibernated"

    async def wake(self) -> None:
        """Wakes a hibernated sandbox. A running one stays as it is."""
        await self._request("POST", "/wake", timeout=MACHINE_WITHIN)
        self.status = "running"

    async def snapshot(
        self,
        *,
        name: Optional[str] = None,
        volumes: Optional[OnVolumes] = None,
        keep_memory: bool = True,
        durable: bool = False,
    ) -> str:
        """Saves memory, disk and devices; the sandbox keeps running. Pass the ID to ``create(from_snapshot=...)``.

        A name is unique in the workspace and works instead of the ID. If the sandbox has volumes, ``volumes`` says what
        sandboxes from the snapshot get. Without ``keep_memory``, only the disk is saved, and these sandboxes boot.
        With ``durable``, the call returns when the store of the server's fleet has the snapshot.
        """
        kept = None if keep_memory else False
        wanted = {"name": name, "volumes": volumes, "keep_memory": kept, "durable": durable or None}
        body = {key: value for key, value in wanted.items() if value is not None} or None
        data = await self._request("POST", "/snapshots", body=body, timeout=MACHINE_WITHIN)
        return str(data["id"])

    @overload
    async def fork(
        self: M,
        count: None = None,
        *,
        at: Union[int, str, None] = None,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> M: ...

    @overload
    async def fork(
        self: M,
        count: int,
        *,
        at: Union[int, str, None] = None,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> List[M]: ...

    async def fork(
        self: M,
        count: Optional[int] = None,
        *,
        at: Union[int, str, None] = None,
        metadata: Optional[Dict[str, str]] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> Union[M, List[M]]:
        """Copies the machine with its processes and variables. With ``count``, returns a list of that many copies.

        With ``at``, the number or name of a checkpoint, the copies start there, and the sandbox itself does not change.
        If the sandbox has volumes, ``volumes`` says what the copies get. They have its network policy, and its secrets
        only with ``inherit_secrets``.
        """
        if count is not None:
            return await self.fork_tree(count, metadata, at=at, volumes=volumes, inherit_secrets=inherit_secrets)
        data = await self.client._make(self._path("/fork"), _wish(at, metadata, volumes, inherit_secrets) or None)
        return self._child(data["sandbox"] if "sandbox" in data else (data.get("children") or [data])[0])

    async def fork_tree(
        self: M,
        count: int,
        metadata: Optional[Dict[str, str]] = None,
        *,
        at: Union[int, str, None] = None,
        volumes: Optional[OnVolumes] = None,
        inherit_secrets: bool = False,
    ) -> List[M]:
        """Makes copies that are siblings, for :meth:`promote`. The list is shorter if some could not start."""
        body: Dict[str, Any] = {"count": count, **_wish(at, metadata, volumes, inherit_secrets)}
        data = await self.client._make(self._path("/fork-tree"), body)
        children = data if isinstance(data, list) else data["children"]
        return [self._child(child) for child in children]

    def _child(self: M, data: Dict[str, Any]) -> M:
        child = type(self)._of(self.client, {"status": "running", "template": self.template, **data})
        child.metadata.setdefault("fork_parent_id", self.id)
        return child

    async def promote(self, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Promotion:
        """Makes this copy independent of its tree. With ``cleanup_siblings`` it ends the other copies."""
        body: Dict[str, Any] = {"cleanup_siblings": cleanup_siblings, **({"tree_id": tree_id} if tree_id else {})}
        promotion: Promotion = await self._request("POST", "/promote", body=body, timeout=MACHINE_WITHIN)
        return promotion

    async def explore(self: M, candidates: Sequence[Union[Candidate, str]], **options: Any) -> ExploreResult[M]:
        """Tries every candidate in its own fork and keeps the best; see :func:`sandling.explore`."""
        from .explore import explore

        return await explore(self, candidates, **options)  # type: ignore[type-var]

    async def timeline(self) -> Timeline:
        """Its checkpoints, oldest first."""
        return Timeline.from_wire(await self._request("GET", "/timeline", timeout=MACHINE_WITHIN))

    async def checkpoint(self, name: Optional[str] = None) -> Checkpoint:
        """Makes a checkpoint now. One with a name is kept."""
        body = {"name": name} if name else {}
        data = await self._request("POST", "/checkpoints", body=body, timeout=MACHINE_WITHIN)
        return Checkpoint.from_wire(data)

    async def name_checkpoint(self, checkpoint: Union[int, str], name: Optional[str]) -> Checkpoint:
        """Names a checkpoint, which keeps it, or removes its name."""
        data = await self._request("PATCH", f"/checkpoints/{checkpoint}", body={"name": name}, timeout=MACHINE_WITHIN)
        return Checkpoint.from_wire(data)

    async def rewind(self, to: Union[int, str]) -> Optional[int]:
        """Puts the sandbox back to a checkpoint, by number or name: memory, disk, processes and variables.

        The current state becomes a checkpoint first. Its number is returned, so that you can undo the rewind.
        """
        data = await self._request("POST", "/rewind", body={"to": to}, timeout=MACHINE_WITHIN)
        self.status = "running"
        was: Optional[int] = data["was"]
        return was

    async def diff(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> Diff:
        """The files that were added, changed and removed, with text diffs.

        :param since: the number or name of a checkpoint, ``now``, a sandbox ID, ``SANDBOX@CHECKPOINT`` or a snapshot.
        :param to: the same.
        :param path: the directory to compare; paths in the answer are relative to it.
        """
        params = {"from": str(since), "to": str(to), "path": path}
        return Diff.from_wire(await self._request("GET", "/diff", params=params, timeout=MACHINE_WITHIN))

    async def diff_patch(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> str:
        """The diff as a patch, for ``git apply`` or ``patch -p1``."""
        params = {"from": str(since), "to": str(to), "path": path, "format": "patch"}
        return (await self._fetch("GET", "/diff", params=params, timeout=MACHINE_WITHIN)).text

    async def diff_tar(self, since: Union[int, str], to: Union[int, str] = "now", *, path: str = "/") -> bytes:
        """The added and changed files as a tar."""
        params = {"from": str(since), "to": str(to), "path": path, "format": "tar"}
        return (await self._fetch("GET", "/diff", params=params, timeout=MACHINE_WITHIN)).content

    async def lifecycle(self) -> Lifecycle:
        """How long it may live."""
        return await self._lifecycle("GET", None)

    async def set_ttl(self, seconds: int) -> Lifecycle:
        """Sets the TTL, counted from now; 0 means no limit."""
        return await self._lifecycle("PATCH", {"ttl_seconds": seconds})

    async def set_idle(self, seconds: int) -> Lifecycle:
        """Sets the idle timeout; 0 means no limit."""
        return await self._lifecycle("PATCH", {"idle_seconds": seconds})

    async def set_persistent(self, persistent: bool) -> Lifecycle:
        return await self._lifecycle("PATCH", {"persistent": persistent})

    async def _lifecycle(self, method: str, body: Optional[Dict[str, Any]]) -> Lifecycle:
        told: Lifecycle = await self._request(method, "/lifecycle", body=body)
        self.persistent = told["persistent"]
        return told


def _wish(
    at: Union[int, str, None],
    metadata: Optional[Dict[str, str]],
    volumes: Optional[OnVolumes],
    inherit_secrets: bool,
) -> Dict[str, Any]:
    wanted = {"metadata": metadata, "volumes": volumes, "inherit_secrets": inherit_secrets}
    # The server refuses a checkpoint 0. It must not become a fork of this moment.
    chosen = {} if at is None else {"at": at}
    return {**chosen, **{name: value for name, value in wanted.items() if value}}
