"""Starts a fleet behind one address, which passes each connection on to another node. For the suites of public clients.

    SANDLING=… SANDLING_HOME=DIRECTORY SANDLING_TOKEN=… python serve.py NODES [OPTION OF serve…]

Prints what `sandling serve` prints: where clients connect. The nodes listen at the same port of other loopback addresses,
so the URLs that they make lead through the same address. DIRECTORY gets a home for each node, and `tls` with the
certificates of all. Ends after SIGTERM with the status of the worst node.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FRONT = "127.0.0.1"
STARTED_WITHIN = 60.0
STOPPED_WITHIN = 60.0
CHUNK = 1 << 16


class Node:
    def __init__(self, number, port, place, options):
        self.name = "abcdefghi"[number]
        self.host = f"127.0.1.{number + 1}"
        self.port, self.options = port, options
        self.address = f"{self.host}:{free_port([self.host], 2)}"
        self.home = place / f"home-{self.name}"
        self.home.mkdir(parents=True)
        self.log = place / f"{self.name}.log"
        self.environment = {**os.environ, "SANDLING_HOME": str(self.home)}
        self.process = None

    def cli(self, *arguments):
        command = [os.environ["SANDLING"], *arguments]
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        return done.stdout.strip()

    def start(self):
        command = [os.environ["SANDLING"], "serve", "--listen", f"{self.host}:{self.port}", *self.options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        until(f"{self.name} listens", lambda: "sandling listens on" in self.said())

    def said(self):
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log.read_text()}"
        return self.log.read_text(errors="replace")

    def members(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.cli("fleet", "status", "--json").count('"name"')


def until(what, condition):
    deadline = time.monotonic() + STARTED_WITHIN
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {STARTED_WITHIN} s"
        time.sleep(0.1)


def free_port(hosts, count=1):
    """A port that is free at all addresses, and those after it."""
    while True:
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError, OverflowError):
            port = taken.enter_context(socket.create_server((hosts[0], 0))).getsockname()[1]
            for host, number in itertools.product(hosts, range(count)):
                if (host, number) != (hosts[0], 0):
                    taken.enter_context(socket.create_server((host, port + number)))
            return port


def start(count, options, init=()):
    """Nodes whose servers have these options, of a fleet that began with those of `init`."""
    place = Path(os.environ["SANDLING_HOME"])
    hosts = [f"127.0.1.{number + 1}" for number in range(count)]
    port = free_port([FRONT, *hosts])
    nodes = [Node(number, port, place, options) for number in range(count)]
    first, *others = nodes
    first.cli("fleet", "init", "--name", first.name, "--address", first.address, *init)
    first.start()
    until("the first node is a member", lambda: first.members() == 1)
    token = first.cli("fleet", "token", "--machines", str(max(1, len(others))))
    for node in others:
        node.cli("fleet", "join", first.address, "--token", token, "--name", node.name, "--address", node.address)
        node.start()
    for node in nodes:
        until(f"{node.name} knows all nodes", lambda node=node: node.members() == count)
    merge_certificates(place, nodes)
    return nodes, port


def merge_certificates(place, nodes):
    """Each node has an authority of its own for its clients."""
    (place / "tls").mkdir()
    for name in ("trust.pem", "ca.pem"):
        parts = [node.home / "tls" / name for node in nodes]
        if all(part.exists() for part in parts):
            (place / "tls" / name).write_bytes(b"".join(part.read_bytes() for part in parts))


async def pass_on(nodes, port):
    """Passes connections on to the nodes in turns until SIGTERM."""
    turns = itertools.cycle(nodes)
    # The event loop itself does not keep tasks alive.
    open_connections = set()

    async def accept(reader, writer):
        task = asyncio.current_task()
        open_connections.add(task)
        task.add_done_callback(open_connections.discard)
        node = next(turns)
        try:
            other_reader, other_writer = await asyncio.open_connection(node.host, node.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))

    server = await asyncio.start_server(accept, FRONT, port, backlog=512)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    say(nodes, port)
    await ended.wait()
    server.close()


async def copy(reader, writer):
    """Copies one direction, and ends it at the other side, too."""
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except (OSError, NotImplementedError):
        writer.close()


def say(nodes, port):
    """What the first node said, with the address that clients use."""
    for line in nodes[0].said().splitlines():
        print(line.replace(f"{nodes[0].host}:{port}", f"{FRONT}:{port}"))
    sys.stdout.flush()


def stop(nodes):
    # The first node runs etcd.
    for node in nodes[::-1]:
        node.process.send_signal(signal.SIGTERM)
        node.status = node.process.wait(STOPPED_WITHIN)
        left = list((node.home / "sandboxes").glob("*"))
        if node.status != 0 or left:
            print(f"{node.name} ended with {node.status} and left {left}", file=sys.stderr)
            node.status = node.status or 1
    return max(node.status for node in nodes)


def main(count, options):
    nodes, port = start(count, options)
    try:
        asyncio.run(pass_on(nodes, port))
    finally:
        status = stop(nodes)
        for node in nodes:
            print(f"--- {node.name} said:\n{node.log.read_text(errors='replace')}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
