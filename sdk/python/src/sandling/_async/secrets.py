"""Secrets: values that sandboxes use without seeing them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote

from ..networking import GrantedSecret
from .base import default_client

if TYPE_CHECKING:
    from .client import AsyncClient
    from .sandbox import AsyncSandbox


@dataclass(frozen=True)
class AsyncSecret:
    """A secret of the workspace, without its value, which no request returns.

    A sandbox with the secret has a placeholder in a variable of the same name. The gateway puts the value into HTTPS
    requests to ``hosts``, at ``placements``, and nowhere else.
    """

    name: str
    hosts: List[str] = field(default_factory=list)
    created_at: str = ""
    placements: List[str] = field(default_factory=list)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> AsyncSecret:
        return cls(data["name"], list(data["hosts"]), data.get("created_at", ""), list(data.get("placements", [])))

    @classmethod
    async def set(
        cls,
        name: str,
        value: str,
        *,
        hosts: Union[str, Sequence[str]],
        placements: Union[str, Sequence[str], None] = None,
        client: Optional[AsyncClient] = None,
    ) -> AsyncSecret:
        """Stores or replaces a secret. Sandboxes that have it use the new value at once.

        :param hosts: names and ``*.name`` whose requests may carry it.
        :param placements: where in a request: ``header NAME``, ``header NAME: PREFIX``, ``query KEY`` or ``basic``.
            The default is ``header Authorization: Bearer``. The gateway refuses the placeholder anywhere else.
        """
        return await (client or default_client()).secrets.set(name, value, hosts=hosts, placements=placements)

    @classmethod
    async def list(cls, *, client: Optional[AsyncClient] = None) -> List[AsyncSecret]:
        return await (client or default_client()).secrets.list()

    @classmethod
    async def remove(cls, name: str, *, client: Optional[AsyncClient] = None) -> None:
        """Removes the secret. No sandbox can use it afterwards, and connections that used it are reset."""
        await (client or default_client()).secrets.remove(name)


class AsyncSecrets:
    """``client.secrets``; see also :class:`Secret`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def set(
        self,
        name: str,
        value: str,
        *,
        hosts: Union[str, Sequence[str]],
        placements: Union[str, Sequence[str], None] = None,
    ) -> AsyncSecret:
        """Stores or replaces a secret. Sandboxes that have it use the new value at once."""
        body = {"value": value, "hosts": _list(hosts)}
        if placements is not None:
            body["placements"] = _list(placements)
        return AsyncSecret.from_wire(await self._client._transport.request("PUT", _path(name), body=body))

    async def list(self) -> List[AsyncSecret]:
        data = await self._client._transport.request("GET", "/v1/secrets")
        return [AsyncSecret.from_wire(item) for item in data["secrets"]]

    async def remove(self, name: str) -> None:
        """Removes the secret. No sandbox can use it afterwards, and connections that used it are reset."""
        await self._client._transport.request("DELETE", _path(name))


class AsyncSandboxSecrets:
    """``sandbox.secrets``: the secrets that a sandbox may use."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def list(self) -> List[GrantedSecret]:
        return (await self._sandbox.network.get()).secrets

    async def grant(self, *names: str) -> List[GrantedSecret]:
        """Grants more secrets. Only processes that start afterwards have the variables."""
        async with self._sandbox.client._changing(self._sandbox.id):
            had = [secret.name for secret in await self.list()]
            return await self._change([*had, *(name for name in names if name not in had)])

    async def revoke(self, *names: str) -> List[GrantedSecret]:
        """Revokes secrets at once."""
        async with self._sandbox.client._changing(self._sandbox.id):
            return await self._change([secret.name for secret in await self.list() if secret.name not in names])

    async def _change(self, names: Sequence[str]) -> List[GrantedSecret]:
        return (await self._sandbox.network.set(secrets=[*names])).secrets


def _list(items: Union[str, Sequence[str]]) -> List[str]:
    return [items] if isinstance(items, str) else [*items]


def _path(name: str) -> str:
    return f"/v1/secrets/{quote(name, safe='')}"
