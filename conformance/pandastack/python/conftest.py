"""Clients and sandboxes for the tests. Ends everything that it creates."""

import uuid

import pandastack
import pytest

from support import server


@pytest.fixture(scope="session")
def client():
    return pandastack.Client()


@pytest.fixture(scope="session")
def other_client():
    """A client of another workspace."""
    assert server.TOKEN_OTHER, "SANDLING_TOKEN_OTHER must hold a token of another workspace"
    return pandastack.Client(api_key=server.TOKEN_OTHER)


def _ended_afterwards(made):
    for sandbox in made:
        try:
            sandbox.kill()
        except pandastack.NotFoundError:
            pass


@pytest.fixture
def make(client):
    """Creates a sandbox for one test; arguments as for `sandboxes.create`."""
    made = []

    def create(template="base", by=client, **options):
        made.append(by.sandboxes.create(template=template, **options))
        return made[-1]

    yield create
    _ended_afterwards(made)


@pytest.fixture(scope="session")
def sandbox(client):
    """Shared by tests that only run commands and write to their own directory."""
    shared = client.sandboxes.create(template="base")
    yield shared
    _ended_afterwards([shared])


@pytest.fixture(scope="session")
def interpreter(client):
    """Shared by tests of code contexts; has pandas and matplotlib."""
    shared = client.sandboxes.create(template="code-interpreter")
    yield shared
    _ended_afterwards([shared])


@pytest.fixture
def scratch(sandbox):
    """A fresh directory in the shared sandbox."""
    path = f"/tmp/conformance-{uuid.uuid4().hex}"
    sandbox.exec(f"mkdir {path}", check=True)
    return path


@pytest.fixture
def no_environment(monkeypatch, tmp_path):
    """Removes the tester's environment variables and configuration file."""
    monkeypatch.delenv("PANDASTACK_API", raising=False)
    monkeypatch.delenv("PANDASTACK_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
