"""The client that makes sessions."""

from __future__ import annotations

import uuid
from typing import Dict, Optional, Union

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from .._async.client import AsyncClient
from .._async.sandbox import AsyncSandbox
from ..errors import NotFoundError
from .session import SandlingSandboxClientOptions, SandlingSandboxSession, SandlingSandboxSessionState


class SandlingSandboxClient(BaseSandboxClient[SandlingSandboxClientOptions]):  # type: ignore[misc]
    """Creates sandboxes on the server of ``client``; by default, on the one that ``Sandbox.create`` uses."""

    backend_id = "sandling"
    supports_default_options = True

    def __init__(
        self,
        *,
        client: Optional[AsyncClient] = None,
        instrumentation: Optional[Instrumentation] = None,
        dependencies: Optional[Dependencies] = None,
    ) -> None:
        self._client = client
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: Union[SnapshotSpec, SnapshotBase, None] = None,
        manifest: Optional[Manifest] = None,
        options: Optional[SandlingSandboxClientOptions] = None,
    ) -> SandboxSession:
        wanted = options or SandlingSandboxClientOptions()
        layout = self._validate_manifest_for_create(manifest or Manifest())
        sandbox = await wanted.make(self._client)
        session = uuid.uuid4()
        state = SandlingSandboxSessionState(
            session_id=session,
            manifest=layout,
            snapshot=resolve_snapshot(snapshot, str(session)),
            exposed_ports=wanted.exposed_ports,
            sandbox_id=sandbox.id,
            options=wanted,
        )
        return self._wrap_session(SandlingSandboxSession(state, sandbox), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, SandlingSandboxSession):
            raise TypeError(f"SandlingSandboxClient.delete takes a session of its own, not {type(inner).__name__}")
        if not inner.state.options.hibernate_on_exit:
            await inner.sandbox.close()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, SandlingSandboxSessionState):
            raise TypeError(f"SandlingSandboxClient.resume takes a state of its own, not {type(state).__name__}")
        state.assert_path_grants_rebound()
        try:
            sandbox = await AsyncSandbox.get(state.sandbox_id, client=self._client)
            # It may be hibernated. A running one stays as it is.
            await sandbox.wake()
            is_same = True
        except NotFoundError:
            sandbox = await state.options.make(self._client)
            state.sandbox_id, state.workspace_root_ready = sandbox.id, False
            is_same = False
        inner = SandlingSandboxSession(state, sandbox)
        inner._set_start_state_preserved(is_same, system=is_same)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: Dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandlingSandboxSessionState)
