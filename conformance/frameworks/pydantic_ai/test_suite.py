"""Pydantic AI's own suite for workspaces."""

import pytest
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from sandling import Sandbox
from sandling.pydantic_ai import SandlingWorkspaceBackend


def attached(ref):
    return SandlingWorkspaceBackend(ref=ref)


def end(sandbox_id):
    """Ends a sandbox, unless a test has ended it."""
    for sandbox in Sandbox.list():
        if sandbox.id == sandbox_id:
            sandbox.kill()


class TestWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create("base", ttl_seconds=1800) as made:
            yield made

    @pytest.fixture
    def backend(self, sandbox):
        # Each test has an event loop of its own.
        return attached(WorkspaceRef(provider="sandling", id=sandbox.id))

    @pytest.fixture
    def fresh_backend(self):
        made = []

        def make():
            made.append(SandlingWorkspaceBackend("base", ttl_seconds=600))
            return made[-1]

        yield make
        for backend in made:
            if backend.ref is not None:
                end(backend.ref.id)

    @pytest.fixture
    def attach_backend(self):
        return attached

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            await (await backend.sandbox()).kill()

        return destroy
