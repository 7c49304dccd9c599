"""Volumes: named disks that outlive sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Optional

from ..errors import ConflictError, NotFoundError
from ..options import VolumeMount
from .base import default_client

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncVolume:
    """A named disk. :meth:`mount` sets its mount point: ``create(volumes=[volume.mount("/data")])``."""

    def __init__(self, data: Mapping[str, Any], client: AsyncClient) -> None:
        self._client = client
        self.name = str(data["name"])
        self.size_mb = int(data["size_mb"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.size_mb} MB>"

    @classmethod
    async def create(cls, name: str, size_gb: float = 1, *, client: Optional[AsyncClient] = None) -> AsyncVolume:
        """
        :raises ConflictError: the name is taken.
        """
        client = client or default_client()
        return cls(await client.volumes.create(name, size_mb=max(1, round(size_gb * 1024))), client)

    @classmethod
    async def get(cls, name: str, *, client: Optional[AsyncClient] = None) -> AsyncVolume:
        client = client or default_client()
        return cls(await client.volumes.get(name), client)

    @classmethod
    async def get_or_create(cls, name: str, size_gb: float = 1, *, client: Optional[AsyncClient] = None) -> AsyncVolume:
        """The volume with this name, created if necessary. An existing one keeps its size."""
        client = client or default_client()
        try:
            return await cls.get(name, client=client)
        except NotFoundError:
            pass
        try:
            return await cls.create(name, size_gb, client=client)
        except ConflictError:
            # Another client created it meanwhile.
            return await cls.get(name, client=client)

    @classmethod
    async def list(cls, *, client: Optional[AsyncClient] = None) -> List[AsyncVolume]:
        client = client or default_client()
        return [cls(item, client) for item in await client.volumes.list()]

    def mount(self, path: str, *, read_only: bool = False) -> VolumeMount:
        """Mounts this volume at a path of a sandbox."""
        return VolumeMount(self.name, path, read_only)

    async def clone(self, name: str, *, node: Optional[str] = None) -> AsyncVolume:
        """Creates a copy of this volume. In a fleet, ``node`` names the node that gets it."""
        return type(self)(await self._client.volumes.copy(self.name, name, "clone", node=node), self._client)

    async def snapshot(self, name: str) -> AsyncVolume:
        """Creates a read-only copy of this moment. It can be cloned."""
        return type(self)(await self._client.volumes.copy(self.name, name, "snapshots"), self._client)

    async def delete(self) -> None:
        """Deletes it with all its data. Refused while a sandbox has it."""
        await self._client.volumes.delete(self.name)
