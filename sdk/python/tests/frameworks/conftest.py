from __future__ import annotations

import os
from typing import Callable, Iterator

import pytest
from model_server import ModelServer, Turn

from sandling import Client, Sandbox, local


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a real server, which makes real machines."""
    if "SANDLING_BINARY" not in os.environ or "SANDLING_TEMPLATES" not in os.environ:
        pytest.skip("SANDLING_BINARY and SANDLING_TEMPLATES name no server that could make machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDLING_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("SANDLING_API", raising=False)
        endpoint = local.ensure()
        with Client(endpoint.url, endpoint.token) as made:
            yield made
        local.stop()


@pytest.fixture(scope="session")
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create("base", ttl_seconds=1800, client=client) as made:
        yield made


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModelServer]]:
    servers = []

    def start(*script: Turn) -> ModelServer:
        servers.append(ModelServer(list(script)))
        return servers[-1]

    # Some SDKs report home, or ask for a key even if no one checks it.
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "unused")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield start
    for server in servers:
        server.close()
