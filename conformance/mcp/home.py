"""A home for one case, whose server can be killed and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import AsyncIterator, Iterator


def is_running(process: int) -> bool:
    """Whether any of its threads runs: the last one closes its sockets."""
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            if thread.read_text().rpartition(")")[2].split()[0] not in "ZX":
                return True
        except OSError:
            pass
    return False


class Home:
    """A home and its server, which can be killed."""

    def __init__(self, sandling: str, path: str) -> None:
        self.sandling = sandling
        self.path = Path(path)
        self.environment = {**os.environ, "SANDLING_HOME": path}
        for name in ("SANDLING_API", "SANDLING_TOKEN"):
            self.environment.pop(name, None)

    def serve(self, listen: str = "127.0.0.1:0") -> str:
        command = [self.sandling, "serve", "--listen", listen, "--standbys", "0"]
        log = self.path / "log"
        with open(log, "w") as output:
            server = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
        deadline = time.monotonic() + 60
        # A killed server leaves its address behind.
        while not (said := re.search(r"listens on http://(\S+)", log.read_text())) or not self.is_served():
            assert time.monotonic() < deadline and server.poll() is None, log.read_text()
            time.sleep(0.05)
        return said[1]

    def is_served(self) -> bool:
        command = [self.sandling, "ls"]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=60).returncode == 0

    def servers(self) -> Iterator[int]:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                serves = process.joinpath("cmdline").read_bytes().split(b"\0")[1:2] == [b"serve"]
                if serves and f"SANDLING_HOME={self.path}\0".encode() in process.joinpath("environ").read_bytes():
                    yield int(process.name)
            except OSError:
                pass

    def kill(self, asked: signal.Signals = signal.SIGKILL) -> None:
        servers = list(self.servers())
        for server in servers:
            os.kill(server, asked)
        deadline = time.monotonic() + 60
        while any(is_running(server) for server in servers):
            assert time.monotonic() < deadline, "a server does not end"
            time.sleep(0.05)

    def run(self, *arguments: str) -> str:
        ran = subprocess.run(
            [self.sandling, *arguments], env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran
        return ran.stdout

    def sandboxes(self) -> list[str]:
        return [sandbox["id"] for sandbox in json.loads(self.run("ls", "--json"))]

    def clear(self) -> None:
        """Ends everything, also after a failure."""
        if not any(self.servers()):
            self.serve()
        self.run("rm", "--all")
        self.kill(signal.SIGTERM)


@asynccontextmanager
async def home(sandling: str) -> AsyncIterator[Home]:
    # A short path, because it contains Unix sockets.
    with tempfile.TemporaryDirectory(prefix="mcp", dir="/tmp") as path:
        made = Home(sandling, path)
        try:
            yield made
        finally:
            await asyncio.to_thread(made.clear)
