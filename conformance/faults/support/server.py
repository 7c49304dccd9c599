"""A server with its own home, which can be killed and restarted."""

import os
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

from .client import Client

#: The longest time of a start.
ADDRESS_WITHIN = 30.0
DRAIN_WITHIN = 60.0


class Server:
    def __init__(self, home, *options, environment=None, token=None, log=None):
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.log = log or self.home.parent / "server.log"
        self.token = token or f"faults-{secrets.token_hex(16)}"
        self.environment = {
            **os.environ, "SANDLING_HOME": str(self.home), "SANDLING_TOKEN": self.token, **(environment or {}),
        }
        self.process = None
        self.client = None

    def start(self):
        """Starts it and returns a client, and how long it took until it listened."""
        begun = time.monotonic()
        read_from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            command = self.command("serve", "--listen", "127.0.0.1:0", *self.options)
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        while True:
            said = self.log.read_bytes()[read_from:].decode(errors="replace")
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", said):
                break
            assert self.process.poll() is None, f"the server ended at its start:\n{said}"
            assert time.monotonic() - begun < ADDRESS_WITHIN, f"no address within {ADDRESS_WITHIN} s:\n{said}"
            time.sleep(0.01)
        self.client = self.connect(int(found[1]))
        return self.client, time.monotonic() - begun

    def command(self, *arguments):
        return [os.environ["SANDLING"], *arguments]

    def connect(self, port):
        return Client(port, self.token)

    def kill(self):
        """Kills it."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops it; its sandboxes continue."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DRAIN_WITHIN)
        assert status == 0, f"the server ended with {status} after SIGTERM"

    def said(self):
        return self.log.read_text(errors="replace")

    def directories(self):
        """The names of the machines' directories."""
        place = self.home / "sandboxes"
        return {entry.name for entry in place.iterdir()} if place.exists() else set()
