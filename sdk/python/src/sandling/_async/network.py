"""The network of a sandbox, and what those have that say nothing."""

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
    """``sandbox.network``: what it may reach, and what it did. A change holds at once, also for open connections."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def get(self) -> Network:
        """What it may reach, and what went through its gateway."""
        return Network.from_wire(await self._sandbox._request("GET", "/network"))

    async def set(self, **options: Unpack[NetworkOptions]) -> Network:
        """Changes what is given; what is absent stays."""
        refuse_unknown(options, NetworkOptions, "set")
        return Network.from_wire(await self._sandbox._request("PUT", "/network", body=network_body(options)))

    async def allow(self, *entries: str) -> Network:
        """Lets it reach these, too: names, ``*.name``, addresses, networks or presets such as ``pypi``."""
        async with self._sandbox.client._changing(self._sandbox.id):
            policy = await self.get()
            mode: NetworkMode = "allow" if policy.mode == "deny" else policy.mode
            wanted = [*policy.allow, *(entry for entry in entries if entry not in policy.allow)]
            return await self.set(mode=mode, allow=wanted)

    async def deny(self) -> Network:
        """Takes all that is allowed away: it reaches nothing but its group."""
        return await self.set(mode="deny")

    async def clear(self) -> Network:
        """Forgets its own policy and limits: it follows its template's default again, then its workspace's."""
        await self._sandbox._request("DELETE", "/network")
        return await self.get()

    async def usage(self) -> NetworkUsage:
        """What went through its gateway."""
        return (await self.get()).usage

    async def events(self, tail: int = 100) -> List[NetworkEvent]:
        """What its gateway decided, the last ``tail`` decisions, oldest first. A thousand are kept."""
        data = await self._sandbox._request("GET", "/network/events", params={"tail": tail})
        return [NetworkEvent.from_wire(item) for item in data["events"]]

    async def follow_events(self, tail: int = 0) -> Source[NetworkEvent]:
        """Every decision as it is made, after the last ``tail`` of those before."""
        params = {"tail": tail, "follow": "true"}
        async for event in self._sandbox._events("GET", "/network/events", params=params):
            if event.name == "event":
                yield NetworkEvent.from_wire(event.json())


class AsyncNetworkDefaults:
    """``client.network``: what the workspace's sandboxes may reach that say nothing about it themselves.

    With ``template``, those of one template, which comes first. Changes need a token of the scope ``admin``, and hold
    at once, also for sandboxes that run and their open connections.
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
        """Changes what is given; a default gives neither secrets nor a group.

        With ``binding`` a workspace's is the most that any of its sandboxes may reach and use, whatever they say.
        """
        refuse_unknown(options, NetworkOptions, "set")
        body: Dict[str, object] = network_body({**options, "binding": binding})
        return NetworkDefault.from_wire(await self._client._transport.request("PUT", _path(template), body=body))

    async def clear(self, *, template: Optional[str] = None) -> None:
        """Removes it."""
        await self._client._transport.request("DELETE", _path(template))


def _path(template: Optional[str]) -> str:
    return "/v1/network" if template is None else f"/v1/templates/{quote(template, safe='')}/network"
