# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
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
from .network import NetworkDefaults
from .sandbox import Sandbox
from .secrets import Secrets
from .templates import Templates
from .transport import Transport

#: Creating a machine may take longer than other requests.
CREATE_WITHIN = 300.0
#: A large volume may have to be copied to another node.
COPY_WITHIN = 3600.0
#: A create from an image may pull it first.
IMAGE_WITHIN = 1800.0
#: How often to check for a cancellation.
_GLANCE = 0.1
_LOST_ATTEMPTS = 3


class Client:
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
        self._transport = Transport(lambda: config.configured(api_url, api_key), timeout)
        self._budget = max_create_retry_seconds
        self._on_retry = on_create_retry
        self._changes: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._changes_lock = threading.Lock()
        self.sandboxes = Sandboxes(self)
        self.snapshots = Snapshots(self)
        self.volumes = Volumes(self)
        self.templates = Templates(self)
        self.tokens = Tokens(self)
        self.secrets = Secrets(self)
        self.network = NetworkDefaults(self)

    def _changing(self, sandbox: str) -> Any:
        """Held from a read to the change that depends on it, so that two changes do not overwrite each other."""
        with self._changes_lock:
            lock = self._changes.get(sandbox)
            if lock is None:
                lock = self._changes[sandbox] = Lock()
            return lock

    def me(self) -> Dict[str, Any]:
        """The workspace and scope of the token."""
        told: Dict[str, Any] = self._transport.request("GET", "/v1/me")
        return told

    def version(self) -> Dict[str, Any]:
        """The version of the server and its accelerator."""
        told: Dict[str, Any] = self._transport.request("GET", "/version")
        return told

    def quota(self) -> Dict[str, Any]:
        """The limits of the workspace, and how much is used."""
        told: Dict[str, Any] = self._transport.request("GET", "/v1/quota")
        return told

    def events(self, tail: int = 100) -> List[Event]:
        """The events of the workspace, oldest first."""
        data = self._transport.request("GET", "/v1/events", params={"tail": tail})
        return [Event.from_wire(item) for item in data["events"]]

    def follow_events(self, tail: int = 100) -> Source[Event]:
        """The events of the workspace, and new ones as they happen."""
        for event in self._transport.events("GET", "/v1/events", params={"tail": tail, "follow": "true"}):
            yield Event.from_wire(event.json())

    def api_url(self) -> str:
        """The URL of the server."""
        return (self._transport.located()).url

    def close(self) -> None:
        """Closes the connections. Sandboxes are not touched."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, path: str, body: Any, cancel: Optional[CancelEvent] = None, *, keyed: bool = False) -> Any:
        """Creates machines, and retries if the server has no capacity.

        With an idempotency key, a retry after a lost answer still creates only one machine.
        """
        headers = {"idempotency-key": uuid.uuid4().hex} if keyed else None
        within = _create_within(body or {})
        started = time.monotonic()
        lost = attempt = 0
        while True:
            try:
                return self._transport.request("POST", path, body=body, headers=headers, timeout=within)
            except ConnectionError:
                lost += 1
                if not keyed or lost == _LOST_ATTEMPTS:
                    raise
                sleep(0.2 * lost)
            except SandlingError as error:
                elapsed = time.monotonic() - started
                wait = _in_progress(error, elapsed) or retry.delay(error, attempt, elapsed, self._budget)
                if wait is None:
                    raise
                attempt += 1
                self._wait(CreateRetryEvent(path, attempt, error, wait, elapsed), cancel)

    def _wait(self, event: CreateRetryEvent, cancel: Optional[CancelEvent]) -> None:
        if self._on_retry is not None:
            settle(self._on_retry(event))
        until = time.monotonic() + event.delay_seconds
        while True:
            if cancel is not None and cancel.is_set():
                raise CreateCancelled("waiting for capacity was cancelled") from event.error
            left = until - time.monotonic()
            if left <= 0:
                return
            sleep(left if cancel is None else min(left, _GLANCE))


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


class Sandboxes:
    """``client.sandboxes``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, template: str = DEFAULT_TEMPLATE, **options: Any) -> Sandbox:
        """As :meth:`Sandbox.create`."""
        return Sandbox.create(template, client=self._client, **options)

    def list(self, *, metadata: Optional[Dict[str, str]] = None) -> List[Sandbox]:
        return Sandbox.list(metadata=metadata, client=self._client)

    def get(self, sandbox_id: str) -> Sandbox:
        return Sandbox.get(sandbox_id, client=self._client)

    def delete(self, sandbox_id: str) -> None:
        self._client._transport.request("DELETE", f"/v1/sandboxes/{sandbox_id}")

    def fork(self, sandbox_id: str, metadata: Optional[Dict[str, str]] = None) -> Sandbox:
        """As :meth:`Sandbox.fork`."""
        return Sandbox._of(self._client, {"id": sandbox_id}).fork(metadata=metadata)

    def fork_tree(self, sandbox_id: str, count: int, metadata: Optional[Dict[str, str]] = None) -> List[Sandbox]:
        """As :meth:`Sandbox.fork_tree`."""
        return Sandbox._of(self._client, {"id": sandbox_id}).fork_tree(count, metadata)

    def promote(self, sandbox_id: str, *, cleanup_siblings: bool = False) -> Promotion:
        """As :meth:`Sandbox.promote`."""
        return Sandbox._of(self._client, {"id": sandbox_id}).promote(cleanup_siblings=cleanup_siblings)


class Snapshots:
    """``client.snapshots``: machines that :meth:`Sandbox.snapshot` saved."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, sandbox_id: Optional[str] = None) -> List[SnapshotInfo]:
        """All snapshots, newest first."""
        params = {"sandbox_id": sandbox_id} if sandbox_id else None
        data = self._client._transport.request("GET", "/v1/snapshots", params=params)
        found: List[SnapshotInfo] = data if isinstance(data, list) else data["snapshots"]
        return found

    def get(self, snapshot_id: str) -> SnapshotInfo:
        told: SnapshotInfo = self._client._transport.request("GET", f"/v1/snapshots/{snapshot_id}")
        return told

    def delete(self, snapshot_id: str) -> None:
        self._client._transport.request("DELETE", f"/v1/snapshots/{snapshot_id}")


class Volumes:
    """``client.volumes``: named disks; see also :class:`Volume`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, size_mb: int) -> VolumeInfo:
        body = {"name": name, "size_mb": size_mb}
        told: VolumeInfo = self._client._transport.request("POST", "/v1/volumes", body=body)
        return told

    def list(self) -> List[VolumeInfo]:
        data = self._client._transport.request("GET", "/v1/volumes")
        found: List[VolumeInfo] = data if isinstance(data, list) else data["items"]
        return found

    def get(self, name: str) -> VolumeInfo:
        told: VolumeInfo = self._client._transport.request("GET", f"/v1/volumes/{name}")
        return told

    def copy(self, name: str, copy: str, kind: str = "clone", *, node: Optional[str] = None) -> VolumeInfo:
        """Makes a ``clone`` or one of its ``snapshots``. ``node`` is the node of the fleet that gets a clone."""
        path = f"/v1/volumes/{name}/{kind}"
        body = {"name": copy} if node is None else {"name": copy, "node": node}
        told: VolumeInfo = self._client._transport.request("POST", path, body=body, timeout=COPY_WITHIN)
        return told

    def delete(self, name: str) -> None:
        self._client._transport.request("DELETE", f"/v1/volumes/{name}")


class Tokens:
    """``client.tokens``: the workspace's API tokens."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> List[Token]:
        data = self._client._transport.request("GET", "/v1/me/tokens")
        return [Token.from_wire(item) for item in (data if isinstance(data, list) else data["items"])]

    def create(self, name: str, expires_in_days: Optional[int] = None, *, scope: Optional[str] = None) -> Token:
        """Creates a token. Only this answer has its secret. ``scope`` is ``read``, ``run`` or ``admin``."""
        wanted = {"label": name, "expires_in_days": expires_in_days, "scope": scope}
        body = {key: value for key, value in wanted.items() if value is not None}
        return Token.from_wire(self._client._transport.request("POST", "/v1/me/tokens", body=body))

    def revoke(self, prefix: str) -> None:
        self._client._transport.request("DELETE", f"/v1/me/tokens/{prefix}")


_defaults: WeakKeyDictionary[Any, Client] = WeakKeyDictionary()
# A child process must not share the connections of its parent.
os.register_at_fork(after_in_child=_defaults.clear)


def get_default_client() -> Client:
    """The client that is used by default."""
    client = _defaults.get(scope())
    if client is None:
        _sweep()
        client = _defaults.setdefault(scope(), Client())
    return client


def _sweep() -> None:
    """Drops the clients of closed event loops. Their connections refer to the loop, so they would stay forever."""
    for reference in _defaults.keyrefs():
        owner = reference()
        if owner is not None and is_over(owner):
            client = _defaults.pop(owner, None)
            if client is not None:
                client._transport.leave()


def set_default_client(client: Optional[Client]) -> None:
    """Sets the default client; ``None`` creates a new one."""
    if client is None:
        _defaults.pop(scope(), None)
    else:
        _defaults[scope()] = client
