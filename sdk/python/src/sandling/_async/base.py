"""The base of all parts of a sandbox: its ID, and how to send requests about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncContextManager, Dict, Optional, Type, TypeVar

from .._sse import ServerEvent
from ..fields import SandboxFields
from .colour import Source

if TYPE_CHECKING:
    import httpx

    from .client import AsyncClient

B = TypeVar("B", bound="AsyncSandboxBase")


class AsyncSandboxBase(SandboxFields):
    """A sandbox's identity and its requests."""

    _client: Optional[AsyncClient] = None

    @classmethod
    def _of(cls: Type[B], client: AsyncClient, data: Dict[str, Any]) -> B:
        sandbox = cls.__new__(cls)
        sandbox._client = client
        sandbox._take(data)
        return sandbox

    @property
    def client(self) -> AsyncClient:
        if self._client is None:
            self._client = default_client()
        return self._client

    def _path(self, path: str) -> str:
        if not self.id:
            raise RuntimeError("this sandbox has not been created yet: await it, or enter its `with` block")
        return f"/v1/sandboxes/{self.id}{path}"

    async def _request(self, method: str, path: str, **more: Any) -> Any:
        return await self.client._transport.request(method, self._path(path), **more)

    async def _fetch(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.client._transport.fetch(method, self._path(path), **more)

    def _stream(self, method: str, path: str, **more: Any) -> AsyncContextManager[httpx.Response]:
        return self.client._transport.stream(method, self._path(path), **more)

    def _events(self, method: str, path: str, **more: Any) -> Source[ServerEvent]:
        return self.client._transport.events(method, self._path(path), **more)


def default_client() -> AsyncClient:
    from .client import get_default_client

    return get_default_client()
