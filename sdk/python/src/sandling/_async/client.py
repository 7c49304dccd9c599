"""A client of one server."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any, Callable, Dict, List, Optional
from weakref import WeakKeyDictionary, WeakValueDictionary

from .. import config, retry
from ..errors import ConnectionError, CreateCancelled, SandlingError
from ..models import Event, Promotion, SnapshotInfo, Token, VolumeInfo
from ..options import DEFAULT_TEMPLATE, CancelEvent
from ..retry import CreateRetryEvent
from .colour import Lock, Source, is_over, scope, settle, sleep
from .network import AsyncNetworkDefaults
from .sandbox import AsyncSandbox
from .secrets import AsyncSecrets
from .templates import AsyncTemplates
from .transport import AsyncTransport

#: Creating a machine may take longer than other requests.
CREATE_WITHIN = 300.0
#: A large volume may have to be copied to another node.
COPY_WITHIN = 3600.0
#: A create from an image may pull it first.
IMAGE_WITHIN = 1800.0
#: How often to check for a cancellation.
_GLANCE = 0.1
_LOST_ATTEMPTS = 3


class AsyncClient:
    """A client of one server: the given one, or ``SANDLING_API``, or else the local one, started if necessary."""

    def __init__(
        self,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
        timeout: float = 60.0,
        *,
        max_create_retry_seconds: float = retry.DEFAULT_BUDGET,
        on_create_retry: Optional[Callable[[CreateRetryEvent], Any]] = None,
    ) -> None:
        self._transport = AsyncTransport(lambda: config.configured(api_url, api_key), timeout)
        self._budget = max_create_retry_seconds
        self._on_retry = on_create_retry
        self._changes: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._changes_lock = threading.Lock()
        self.sandboxes = AsyncSandboxes(self)
        self.snapshots = AsyncSnapshots(self)
        self.volumes = AsyncVolumes(self)
        self.templates = AsyncTemplates(self)
        self.tokens = AsyncTokens(self)
        self.secrets = AsyncSecrets(self)
        self.network = AsyncNetworkDefaults(self)

    def _changing(self, sandbox: str) -> Any:
        """Held from a read to the change that depends on it, so that two changes do not overwrite each other."""
        with self._changes_lock:
            lock = self._changes.get(sandbox)
            if lock is None:
                lock = self._changes[sandbox] = Lock()
            return lock

    async def me(self) -> Dict[str, Any]:
        """The workspace and scope of the token."""
        told: Dict[str, Any] = await self._transport.request("GET", "/v1/me")
        return told

    async def version(self) -> Dict[str, Any]:
        """The version of the server and its accelerator."""
        told: Dict[str, Any] = await self._transport.request("GET", "/version")
        return told

    async def quota(self) -> Dict[str, Any]:
        """The limits of the workspace, and how much is used."""
        told: Dict[str, Any] = await self._transport.request("GET", "/v1/quota")
        return told

    async def events(self, tail: int = 100) -> List[Event]:
        """The events of the workspace, oldest first."""
        data = await self._transport.request("GET", "/v1/events", params={"tail": tail})
        return [Event.from_wire(item) for item in data["events"]]

    async def follow_events(self, tail: int = 100) -> Source[Event]:
        """The events of the workspace, and new ones as they happen."""
        async for event in self._transport.events("GET", "/v1/events", params={"tail": tail, "follow": "true"}):
            yield Event.from_wire(event.json())

    async def api_url(self) -> str:
        """The URL of the server."""
        return (await self._transport.located()).url

    async def aclose(self) -> None:
        """Closes the connections. Sandboxes are not touched."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _make(self, path: str, body: Any, cancel: Optional[CancelEvent] = None, *, keyed: bool = False) -> Any:
        """Creates machines, and retries if the server has no capacity.

        With an idempotency key, a retry after a lost answer still creates only one machine.
        """
        headers = {"idempotency-key": uuid.uuid4().hex} if keyed else None
        within = _create_within(body or {})
        started = time.monotonic()
        lost = attempt = 0
        while True:
            try:
                return await self._transport.request("POST", path, body=body, headers=headers, timeout=within)
            except ConnectionError:
                lost += 1
                if not keyed or lost == _LOST_ATTEMPTS:
                    raise
                await sleep(0.2 * lost)
            except SandlingError as error:
                elapsed = time.monotonic() - started
                wait = _in_progress(error, elapsed) or retry.delay(error, attempt, elapsed, self._budget)
                if wait is None:
                    raise
                attempt += 1
                await self._wait(CreateRetryEvent(path, attempt, error, wait, elapsed), cancel)

    async def _wait(self, event: CreateRetryEvent, cancel: Optional[CancelEvent]) -> None:
        if self._on_retry is not None:
            await settle(self._on_retry(event))
        until = time.monotonic() + event.delay_seconds
        while True:
            if cancel is not None and cancel.is_set():
                raise CreateCancelled("waiting for capacity was cancelled") from event.error
            left = until - time.monotonic()
            if left <= 0:
                return
            await sleep(left if cancel is None else min(left, _GLANCE))


def _create_within(body: Dict[str, Any]) -> Optional[float]:
    """How long to wait for a machine, and for the code that runs in it at once."""
    within = IMAGE_WITHIN if "image" in body else CREATE_WITHIN
    run = body.get("run")
    if run is None:
        return within
    timeout: Optional[float] = run.get("timeout_seconds")
    return None if timeout is None else within + timeout


def _in_progress(error: SandlingError, elapsed: float) -> Optional[float]:
    """Whether the server still works on the first attempt, whose connection was lost."""
    return 0.5 if error.code == "key_in_progress" and elapsed < CREATE_WITHIN else None


class AsyncSandboxes:
    """``client.sandboxes``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, template: str = DEFAULT_TEMPLATE, **options: Any) -> AsyncSandbox:
        """As :meth:`Sandbox.create`."""
        return await AsyncSandbox.create(template, client=self._client, **options)

    async def list(self, *, metadata: Optional[Dict[str, str]] = None) -> List[AsyncSandbox]:
        return await AsyncSandbox.list(metadata=metadata, client=self._client)

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        return await AsyncSandbox.get(sandbox_id, client=self._client)

    async def delete(self, sandbox_id: str) -> None:
        await self._client._transport.request("DELETE", f"/v1/sandboxes/{sandbox_id}")

    async def fork(self, sandbox_id: str, metadata: Optional[Dict[str, str]] = None) -> AsyncSandbox:
        """As :meth:`Sandbox.fork`."""
        return await AsyncSandbox._of(self._client, {"id": sandbox_id}).fork(metadata=metadata)

    async def fork_tree(
        self, sandbox_id: str, count: int, metadata: Optional[Dict[str, str]] = None
    ) -> List[AsyncSandbox]:
        """As :meth:`Sandbox.fork_tree`."""
        return await AsyncSandbox._of(self._client, {"id": sandbox_id}).fork_tree(count, metadata)

    async def promote(self, sandbox_id: str, *, cleanup_siblings: bool = False) -> Promotion:
        """As :meth:`Sandbox.promote`."""
        return await AsyncSandbox._of(self._client, {"id": sandbox_id}).promote(cleanup_siblings=cleanup_siblings)


class AsyncSnapshots:
    """``client.snapshots``: machines that :meth:`Sandbox.snapshot` saved."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self, *, sandbox_id: Optional[str] = None) -> List[SnapshotInfo]:
        """All snapshots, newest first."""
        params = {"sandbox_id": sandbox_id} if sandbox_id else None
        data = await self._client._transport.request("GET", "/v1/snapshots", params=params)
        found: List[SnapshotInfo] = data if isinstance(data, list) else data["snapshots"]
        return found

    async def get(self, snapshot_id: str) -> SnapshotInfo:
        told: SnapshotInfo = await self._client._transport.request("GET", f"/v1/snapshots/{snapshot_id}")
        return told

    async def delete(self, snapshot_id: str) -> None:
        await self._client._transport.request("DELETE", f"/v1/snapshots/{snapshot_id}")


class AsyncVolumes:
    """``client.volumes``: named disks; see also :class:`Volume`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, name: str, size_mb: int) -> VolumeInfo:
        body = {"name": name, "size_mb": size_mb}
        told: VolumeInfo = await self._client._transport.request("POST", "/v1/volumes", body=body)
        return told

    async def list(self) -> List[VolumeInfo]:
        data = await self._client._transport.request("GET", "/v1/volumes")
        found: List[VolumeInfo] = data if isinstance(data, list) else data["items"]
        return found

    async def get(self, name: str) -> VolumeInfo:
        told: VolumeInfo = await self._client._transport.request("GET", f"/v1/volumes/{name}")
        return told

    async def copy(self, name: str, copy: str, kind: str = "clone", *, node: Optional[str] = None) -> VolumeInfo:
        """Makes a ``clone`` or one of its ``snapshots``. ``node`` is the node of the fleet that gets a clone."""
        path = f"/v1/volumes/{name}/{kind}"
        body = {"name": copy} if node is None else {"name": copy, "node": node}
        told: VolumeInfo = await self._client._transport.request("POST", path, body=body, timeout=COPY_WITHIN)
        return told

    async def delete(self, name: str) -> None:
        await self._client._transport.request("DELETE", f"/v1/volumes/{name}")


class AsyncTokens:
    """``client.tokens``: the workspace's API tokens."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self) -> List[Token]:
        data = await self._client._transport.request("GET", "/v1/me/tokens")
        return [Token.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    async def create(self, name: str, expires_in_days: Optional[int] = None, *, scope: Optional[str] = None) -> Token:
        """Creates a token. Only this answer has its secret. ``scope`` is ``read``, ``run`` or ``admin``."""
        wanted = {"label": name, "expires_in_days": expires_in_days, "scope": scope}
        body = {key: value for key, value in wanted.items() if value is not None}
        return Token.from_wire(await self._client._transport.request("POST", "/v1/me/tokens", body=body))

    async def revoke(self, prefix: str) -> None:
        await self._client._transport.request("DELETE", f"/v1/me/tokens/{prefix}")


_defaults: WeakKeyDictionary[Any, AsyncClient] = WeakKeyDictionary()
# A child process must not share the connections of its parent.
os.register_at_fork(after_in_child=_defaults.clear)


def get_default_client() -> AsyncClient:
    """The client that is used by default."""
    client = _defaults.get(scope())
    if client is None:
        _sweep()
        client = _defaults.setdefault(scope(), AsyncClient())
    return client


def _sweep() -> None:
    """Drops the clients of closed event loops. Their connections refer to the loop, so they would stay forever."""
    for reference in _defaults.keyrefs():
        owner = reference()
        if owner is not None and is_over(owner):
            client = _defaults.pop(owner, None)
            if client is not None:
                client._transport.leave()


def set_default_client(client: Optional[AsyncClient]) -> None:
    """Sets the default client; ``None`` creates a new one."""
    if client is None:
        _defaults.pop(scope(), None)
    else:
        _defaults[scope()] = client
