"""Nodes that become one fleet, and what all of them must say."""

import contextlib
import http.client
import json
import os
import secrets

from support import processes

from .network import Network
from .node import Node

NAMES = ("a", "b", "c")
#: How long everything may take to work again after the last fault. A lease takes 10 s to end, etcd some to elect itself.
HEALED_WITHIN = 120.0
UNANSWERED = (OSError, http.client.HTTPException)


class Fleet:
    def __init__(self, place):
        self.network = Network(NAMES)
        self.token = f"fleet-{secrets.token_hex(16)}"
        self.place = place
        self.nodes = []

    def start(self):
        """Makes the first node and lets the others join it."""
        self.network.make()
        self.nodes = [Node(self.place, name, self.network, self.token) for name in NAMES]
        first, *others = self.nodes
        pass_ = first.cli("fleet", "init", "--name", first.name, "--address", first.address).splitlines()[-1]
        self._serve(first)
        for node in others:
            # It lets nobody join before it is a member itself.
            processes.until("the first node is a member", lambda: first.name in (self._members(first) or ()), HEALED_WITHIN)
            join = ("--token", pass_, "--name", node.name, "--address", node.address)
            node.cli("fleet", "join", first.address, *join)
            self._serve(node)
            pass_ = first.cli("fleet", "token")
        self.wait_until_healed()

    def _serve(self, node):
        client, _ = node.start()
        limits = dict.fromkeys(("sandboxes", "cpu", "memory_mb", "disk_mb", "creates_per_minute", "requests_per_second"))
        client.call("PUT", "/v1/workspaces/default/quota", limits).expect(200)

    def wait_until_healed(self):
        """Waits until each node runs, and all answer for all."""
        for node in self.nodes:
            try:
                processes.until("healed", lambda node=node: self._lacks(node) is None, HEALED_WITHIN, 0.3)
            except AssertionError:
                raise AssertionError(f"{node.name} does not heal within {HEALED_WITHIN} s: {self._lacks(node)}") from None

    def _members(self, node):
        """The names of the nodes that a node knows, and whether they drain. `None` if it does not say."""
        with contextlib.suppress(AssertionError):
            return {member["name"]: member["draining"] for member in json.loads(node.cli("fleet", "status", "--json"))}

    def _lacks(self, node):
        """Why a node does not yet answer for all. `None` if it does."""
        if (members := self._members(node)) != dict.fromkeys(NAMES, False):
            return f"it knows the nodes {members}"
        try:
            listed = node.client.call("GET", "/v1/sandboxes", timeout=10)
            # A create without a lease is refused, one of an unknown template is not placed.
            placed = node.client.call("POST", "/v1/sandboxes", {"template": "no-such-template"}, timeout=10)
        except UNANSWERED as error:
            return f"it does not answer: {error}"
        if listed.status != 200 or "sandling-partial" in listed.headers:
            return f"its list is incomplete: {listed}"
        return None if placed.status == 400 and placed.code == "template_unknown" else f"it places nothing: {placed}"

    def orphans(self):
        """Directories without a sandbox, and processes that belong to no node's machines."""
        found, expected = [], set()
        for node in self.nodes:
            engines = set(os.listdir(node.home / "engines"))
            known = {sandbox["id"] for sandbox in node.client.call("GET", "/v1/sandboxes").expect(200).json()}
            for name in node.directories() - known:
                owner = node.home / "sandboxes" / name / "engine"
                if not owner.exists() or owner.read_text().strip() not in engines:
                    found.append(f"{node.name}: directory {name}")
            machines = processes.of_machines(node.home)
            expected |= machines | {node.process.pid} | processes.below(node.process.pid)
            for pid in machines:
                expected |= processes.below(pid)
        strangers = [pid for pid in processes.below(os.getpid()) if pid not in expected and processes.is_alive(pid)]
        return found + [describe(pid) for pid in strangers]

    def stop(self):
        """Ends all servers as an operator would, and checks that nothing is left."""
        for node in self.nodes[::-1]:
            node.stop()
            assert not node.directories(), f"{node.name} left {node.directories()}"
        processes.until("no process is left", lambda: not processes.below(os.getpid()) or None)

    def remove(self):
        """Ends everything, also after a failure, and removes disks and namespaces."""
        processes.end_all_below(os.getpid())
        processes.until("no process is left", lambda: not processes.below(os.getpid()) or None)
        for node in self.nodes:
            node.mounts.undo()
        self.network.remove()


def describe(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        line = "ended meanwhile"
    return f"process {pid}: {line}"
