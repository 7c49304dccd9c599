from __future__ import annotations

from typing import Callable, Iterator

import pytest
from model_server import ModelServer, Turn


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModelServer]]:
    servers = []

    def start(*script: Turn) -> ModelServer:
        servers.append(ModelServer(list(script)))
        return servers[-1]

    # Some SDKs send telemetry, or need a key even if nobody checks it.
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "unused")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield start
    for server in servers:
        server.close()
