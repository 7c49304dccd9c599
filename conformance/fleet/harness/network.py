"""Network namespaces: one with a bridge, and one for each node, connected to it.

They exist in a private mount namespace, so they end with the process that made them.
"""

import contextlib
import ctypes
import http.client
import os
import socket
import subprocess
from pathlib import Path

from support.mounts import Mounts

CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")
BRIDGE = "bridge"
SUBNET = "10.77.0"
#: How much of what a node receives is lost.
LOST_PERCENT = 30
DELAY = "400ms"
#: For kernels that cannot delay packets: these wait in a queue instead.
SLOW = ("rate", "64kbit", "burst", "4kb", "latency", "3s")

LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
    return done.stdout


class Network:
    def __init__(self, nodes):
        self.nodes = list(nodes)
        self.mounts = Mounts()
        self.made = []

    def make(self):
        assert is_private(), "the namespaces need a private mount namespace; run.sh makes one, as root"
        NAMESPACES.mkdir(exist_ok=True)
        self.mounts.small_disk(NAMESPACES, 1)
        for name in (BRIDGE, *self.nodes):
            run("ip", "netns", "add", name)
            self.made.append(name)
            run("ip", "-n", name, "link", "set", "dev", "lo", "up")
        run("ip", "-n", BRIDGE, "link", "add", "name", "switch", "type", "bridge")
        run("ip", "-n", BRIDGE, "link", "set", "dev", "switch", "up")
        for node in self.nodes:
            run("ip", "-n", BRIDGE, "link", "add", "name", node, "type", "veth", "peer", "name", "eth0", "netns", node)
            run("ip", "-n", BRIDGE, "link", "set", "dev", node, "master", "switch", "up")
            run("ip", "-n", node, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("ip", "-n", node, "link", "set", "dev", "eth0", "up")

    def remove(self):
        """Removes the namespaces. A process in one of them would keep it, so that is an error."""
        left = {name: run("ip", "netns", "pids", name).split() for name in self.made}
        for name in left:
            run("ip", "netns", "del", name)
        self.mounts.undo()
        assert not any(left.values()), f"processes were left in network namespaces: {left}"

    def address(self, node):
        return f"{SUBNET}.{self.nodes.index(node) + 1}"

    def inside(self, node):
        """The beginning of a command that runs in a node's namespace."""
        return ["nsenter", f"--net={NAMESPACES / node}", "--"]

    def connection(self, node):
        """A class of HTTP connections that start in a node's namespace."""
        path = NAMESPACES / node

        class Inside(http.client.HTTPConnection):
            def connect(self):
                with entered(path):
                    self.sock = socket.socket()
                self.sock.settimeout(self.timeout)
                self.sock.connect((self.host, self.port))

        return Inside

    def cut(self, node):
        run("ip", "-n", BRIDGE, "link", "set", "dev", node, "down")

    def join(self, node):
        run("ip", "-n", BRIDGE, "link", "set", "dev", node, "up")

    def drop(self, node, hook):
        """Drops everything in one direction: what the node receives (`input`) or what it sends (`output`)."""
        self._filter(node, hook, "")

    def lose(self, node):
        self._filter(node, "input", f"numgen random mod 100 < {LOST_PERCENT}")

    def _filter(self, node, hook, condition):
        interface = "iifname" if hook == "input" else "oifname"
        rules = f"""table inet faults {{
          chain faults {{
            type filter hook {hook} priority 0
            {interface} eth0 {condition} drop
          }}
        }}
        """
        run(*self.inside(node), "nft", "-f", "-", input=rules)

    def stop_filter(self, node):
        run(*self.inside(node), "nft", "delete", "table", "inet", "faults")

    def delay(self, node):
        kinds = (["netem", "delay", DELAY], ["tbf", *SLOW])
        for kind in kinds:
            added = subprocess.run(["tc", "-n", node, "qdisc", "add", "dev", "eth0", "root", *kind], capture_output=True)
            if added.returncode == 0:
                return
        raise AssertionError(f"the kernel can neither delay nor slow down packets: {added.stderr}")

    def stop_delay(self, node):
        run("tc", "-n", node, "qdisc", "del", "dev", "eth0", "root")


def is_private():
    """Whether this process has a mount namespace of its own, unlike its parent."""
    own, parents = (os.stat(f"/proc/{pid}/ns/mnt").st_ino for pid in ("self", os.getppid()))
    return os.geteuid() == 0 and own != parents


@contextlib.contextmanager
def entered(path):
    """This thread's new sockets belong to the namespace at `path`."""
    with open("/proc/thread-self/ns/net", "rb") as own, open(path, "rb") as other:
        enter(other)
        try:
            yield
        finally:
            enter(own)


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
