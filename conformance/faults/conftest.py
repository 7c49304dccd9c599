"""Gives each test its own server and ends everything that was started."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support import processes
from support.mounts import Mounts
from support.server import Server


def pytest_configure():
    processes.become_subreaper()


@pytest.fixture
def place():
    """A directory with a short path, because it contains Unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="faults."))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def serve(place):
    """Creates a server whose home is in `place` or another directory, with these options. It ends with the test."""
    made = []

    def make(home=None, *options):
        server = Server(home or place / "home", *options)
        made.append(server)
        client, _ = server.start()
        limits = {"sandboxes": None, "disk_mb": None, "creates_per_minute": None, "requests_per_second": None}
        client.call("PUT", "/v1/workspaces/default/quota", limits).expect(200)
        return server, client

    yield make
    for server in made:
        if server.process.poll() is None:
            server.kill()
        print(server.said()[-5000:])
    processes.end_all_below(os.getpid())


@pytest.fixture
def mounts():
    """Mounts file systems in a private mount namespace and unmounts them."""
    if os.stat("/proc/self/ns/mnt").st_ino == os.stat(f"/proc/{os.getppid()}/ns/mnt").st_ino:
        pytest.skip("not in a mount namespace of its own; run.sh makes one, as root")
    mounted = Mounts()
    yield mounted
    mounted.undo()
