"""A scripted model."""

import pytest
from model_server import ModelServer


@pytest.fixture
def model():
    """Starts a model with a script; `asked` has the requests that it got."""
    started = []

    def start(script):
        started.append(ModelServer(script))
        return started[-1]

    yield start
    for server in started:
        server.close()
