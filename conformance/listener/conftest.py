"""Gives each test its own server."""

import shutil
import tempfile
from pathlib import Path

import pytest

from server import Listening


@pytest.fixture
def serve():
    """Starts a server with these options. It ends with the test."""
    made = []
    # A short path, because it contains Unix sockets.
    place = Path(tempfile.mkdtemp(prefix="listener."))

    def make(*options):
        server = Listening(place / str(len(made)) / "home", *options)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        if server.process.poll() is None:
            server.kill()
        print(server.said()[-5000:])
    shutil.rmtree(place, ignore_errors=True)
