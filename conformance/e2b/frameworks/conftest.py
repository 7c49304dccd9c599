"""A model that says what it is told to."""

import pytest
from model_server import ModelServer


@pytest.fixture
def model():
    """Starts a model with a script; the requests that it got are in `asked`."""
    started = []

    def start(script):
        started.append(ModelServer(script))
        return started[-1]

    yield start
    for server in started:
        server.close()
