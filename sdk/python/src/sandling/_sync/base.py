# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""The base of all parts of a sandbox: its ID, and how to send requests about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ContextManager, Dict, Optional, Type, TypeVar

from .._sse import ServerEvent
from ..fields import SandboxFields
from .colour import Source

if TYPE_CHECKING:
    import httpx

    from .client import Client

B = TypeVar("B", bound="SandboxBase")


class SandboxBase(SandboxFields):
    """A sandbox's identity and its requests."""

    _client: Optional[Client] = None

    @classmethod
    def _of(cls: Type[B], client: Client, data: Dict[str, Any]) -> B:
        sandbox = cls.__new__(cls)
        sandbox._client = client
        sandbox._take(data)
        return sandbox

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = default_client()
        return self._client

    def _path(self, path: str) -> str:
        if not self.id:
            raise RuntimeError("this sandbox has not been created yet: await it, or enter its `with` block")
        return f"/v1/sandboxes/{self.id}{path}"

    def _request(self, method: str, path: str, **more: Any) -> Any:
        return self.client._transport.request(method, self._path(path), **more)

    def _fetch(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client._transport.fetch(method, self._path(path), **more)

    def _stream(self, method: str, path: str, **more: Any) -> ContextManager[httpx.Response]:
        return self.client._transport.stream(method, self._path(path), **more)

    def _events(self, method: str, path: str, **more: Any) -> Source[ServerEvent]:
        return self.client._transport.events(method, self._path(path), **more)


def default_client() -> Client:
    from .client import get_default_client

    return get_default_client()
