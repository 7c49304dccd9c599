from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest
from colour import Colour
from fake_server import FakeServer

from sandling import Client, Sandbox, local

# Also for processes that tests start.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return Colour(request.param)


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a real server with real machines."""
    if "SANDLING_BINARY" not in os.environ or "SANDLING_TEMPLATES" not in os.environ:
        pytest.skip("SANDLING_BINARY and SANDLING_TEMPLATES name no server that could make machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDLING_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("SANDLING_API", raising=False)
        # Test hosts may have a mirror of the registries at reserved addresses.
        patch.setenv("SANDLING_NETWORK_OPEN", "192.0.2.0/24,198.51.100.0/24,203.0.113.0/24")
        endpoint = local.ensure()
        with Client(endpoint.url, endpoint.token) as made:
            yield made
        local.stop()


@pytest.fixture(scope="session")
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create("base", ttl_seconds=1800, client=client) as made:
        yield made
