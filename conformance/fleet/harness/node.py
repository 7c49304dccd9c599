"""One node: a server in a network namespace of its own, with a small disk and a clock that can be shifted."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from support import processes
from support.client import Client
from support.mounts import Mounts
from support.server import Server

PORT = 7443
#: Enough for everything, in the memory that is used.
DISK_MIB = 64 << 10
#: Debian's package `faketime` has it.
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class Node(Server):
    def __init__(self, place, name, network, token):
        self.name, self.network = name, network
        #: The program of its next start.
        self.program = os.environ["SANDLING"]
        self.disk = place / name
        self.mounts = Mounts()
        self.mounts.small_disk(self.disk, DISK_MIB)
        self.clock = place / f"{name}.clock"
        self.set_clock("+0")
        assert FAKETIME.exists(), f"{FAKETIME} is missing; install the package faketime"
        # Only the wall clock is shifted, as on a host whose time is corrected.
        shifted = {
            "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
        }
        super().__init__(
            self.disk / "home", "--standbys", "0", environment=shifted, token=token, log=place / f"{name}.log"
        )

    @property
    def address(self):
        return f"{self.network.address(self.name)}:{PORT}"

    def command(self, *arguments):
        return [*self.network.inside(self.name), self.program, *arguments]

    def connect(self, port):
        return Client(port, self.token, self.network.connection(self.name))

    def cli(self, *arguments, timeout=60):
        done = subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, check=False, timeout=timeout
        )
        assert done.returncode == 0, f"{self.name}: {arguments} ended with {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def said_by(self, *arguments):
        """What a command prints, also if it fails."""
        command = self.command(*arguments)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def die(self):
        """Ends as when the machine loses its power: the server, its sandboxes, and etcd."""
        machines = [self.home / "sandboxes" / name for name in self.directories()]
        self.kill()
        for directory in machines:
            processes.kill_machine(directory)

    def end_etcd(self):
        """Kills etcd, if this node runs it."""
        for pid in processes.below(self.process.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "etcd":
                    os.kill(pid, signal.SIGKILL)

    def fill_disk(self):
        used = os.statvfs(self.disk)
        self._resize((used.f_blocks - used.f_bfree) * used.f_frsize)

    def free_disk(self):
        self._resize(DISK_MIB << 20)

    def _resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.disk)], check=True)

    def set_clock(self, offset):
        """Shifts the wall clock, such as `+3600`, within a second."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.rename(self.clock)
