"""The network of a sandbox, and the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional
from urllib.parse import quote

from ..networking import Network, NetworkDefault, NetworkEvent, NetworkMode, NetworkOptions, NetworkUsage, network_body
from ..options import refuse_unknown
from .colour import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import AsyncClient
    from .sandbox import AsyncSandbox


class AsyncSandboxNetwork:
    """``sandbox.network``: what it may reach, and what it used. Changes apply at once, also to open connections."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def get(self) -> Network:
        """Its policy and its usage."""
        return Network.from_wire(await self._sandbox._request("GET", "/network"))

    async def set(self, **options: Unpack[NetworkOptions]) -> Network:
        """Changes the given options. Others keep their value."""
        refuse_unknown(options, NetworkOptions, "set")
        return Network.from_wire(await self._sandbox._request("PUT", "/network", body=network_body(options)))

    async def allow(self, *entries: str) -> Network:
        """Adds names, ``*.name``, addresses, networks or presets such as ``pypi`` to the allow-list."""
        async with self._sandbox.client._changing(self._sandbox.id):
            policy = await self.get()
            mode: NetworkMode = "allow" if policy.mode == "deny" else policy.mode
            wanted = [*policy.allow, *(entry for entry in entries if entry not in policy.allow)]
            return await self.set(mode=mode, allow=wanted)

    async def deny(self) -> Network:
        """Denies everything: it reaches only its group."""
        return await self.set(mode="deny")

    async def clear(self) -> Network:
        """Removes its own policy and limits. It then follows the default of its template or its workspace."""
        await self._sandbox._request("DELETE", "/network")
        return await self.get()

    async def usage(self) -> NetworkUsage:
        """The traffic through its gateway."""
        return (await self.get()).usage

    async def events(self, tail: int = 100) -> List[NetworkEvent]:
        """The last ``tail`` decisions of its gateway, oldest first. A thousand are stored."""
        data = await self._sandbox._request("GET", "/network/events", params={"tail": tail})
        return [NetworkEvent.from_wire(item) for item in data["events"]]

    async def follow_events(self, tail: int = 0) -> Source[NetworkEvent]:
        """The last ``tail`` decisions, and new ones as they are made."""
        params = {"tail": tail, "follow": "true"}
        async for event in self._sandbox._events("GET", "/network/events", params=params):
            if event.name == "event":
                yield NetworkEvent.from_wire(event.json())


class AsyncNetworkDefaults:
    """``client.network``: the default for sandboxes of the workspace without their own policy.

    With ``template``, the default of one template, which has precedence. Changes need a token with the scope ``admin``
    and apply at once, also to running sandboxes and their open connections.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def get(self, *, template: Optional[str] = None) -> NetworkDefault:
        return NetworkDefault.from_wire(await self._client._transport.request("GET", _path(template)))

    async def set(
        self,
        *,
        template: Optional[str] = None,
        binding: Optional[bool] = None,
        **options: Unpack[NetworkOptions],
    ) -> NetworkDefault:
        """Changes the given options. A default has no secrets and no group.

        With ``binding``, no sandbox of the workspace may exceed the workspace's default.
        """
        refuse_unknown(options, NetworkOptions, "set")
        body: Dict[str, object] = network_body({**options, "binding": binding})
        return NetworkDefault.from_wire(await self._client._transport.request("PUT", _path(template), body=body))

    async def clear(self, *, template: Optional[str] = None) -> None:
        """Removes the default."""
        await self._client._transport.request("DELETE", _path(template))


def _path(template: Optional[str]) -> str:
    return "/v1/network" if template is None else f"/v1/templates/{quote(template, safe='')}/network"
