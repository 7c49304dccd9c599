"""Takes a fleet's etcd back to an older copy of its data, and then to none, and then lets another node run a new one while the
first node is cut off. Checks that the fleet goes on.

    python lost_data.py

Sandboxes, tokens and names of before answer through all nodes, new ones can be made, and a node that drains does so.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from harness.fleet import Fleet
from support import processes
from support.client import Client


def main(kept):
    processes.become_subreaper()
    place = Path(tempfile.mkdtemp(prefix="fleet."))
    fleet = Fleet(place)
    try:
        fleet.start()
        tokens = [Token(fleet), Token(fleet)]
        made = use(fleet, [], "first")
        replace_data(fleet, lambda data: shutil.copytree(data, place / "copy"))
        made = use(fleet, made, "after the copy")
        tokens[0].revoke()
        replace_data(fleet, lambda data: (shutil.rmtree(data), shutil.copytree(place / "copy", data)))
        made = use(fleet, made, "with the copy")
        for token in tokens:
            token.check()
        replace_data(fleet, shutil.rmtree)
        made = use(fleet, made, "without data")
        for token in tokens:
            token.check()
        rebuild(fleet)
        made = use(fleet, made, "with another etcd")
        for token in tokens:
            token.check()
        for sandbox in made:
            fleet.nodes[2].client.delete(sandbox)
        fleet.stop()
    except BaseException:
        kept.mkdir(parents=True, exist_ok=True)
        for log in place.glob("*.log"):
            shutil.copy(log, kept)
            print(f"--- the end of {log.name}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        fleet.remove()
        shutil.rmtree(place, ignore_errors=True)
    print("etcd went back to older data, to none, and to another node: ok")


class Token:
    """A token that one node makes, and another one may revoke."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.secret = fleet.nodes[1].client.call("POST", "/v1/me/tokens", {"label": "of b"}).expect(201).json()["token"]
        self.status = 200
        self.check()

    def revoke(self):
        self.fleet.nodes[2].client.call("DELETE", f"/v1/me/tokens/{self.secret[:12]}").expect(204)
        self.status = 401
        self.check()

    def check(self):
        processes.until(f"all nodes answer {self.status}", lambda: set(self.answers()) == {self.status})

    def answers(self):
        for node in self.fleet.nodes:
            client = Client(node.client.port, self.secret, node.client.connection)
            yield client.call("GET", "/v1/sandboxes").status


def replace_data(fleet, change):
    """Changes etcd's data while its node is stopped."""
    first = fleet.nodes[0]
    first.stop()
    change(first.home / "fleet" / "engine")
    first.start()
    fleet.wait_until_healed()


def rebuild(fleet):
    """The first node runs etcd until it hears from the others that the fleet has another one."""
    first, second, _ = fleet.nodes
    fleet.network.cut(first.name)
    second.cli("fleet", "rebuild", "--lost", first.name)
    fleet.network.join(first.name)
    fleet.wait_until_healed()
    for node in fleet.nodes:
        runs = {member["name"]: member["runs_etcd"] for member in json.loads(node.cli("fleet", "status", "--json"))}
        assert runs == {member.name: member is second for member in fleet.nodes}, runs


def use(fleet, made, name):
    """Makes a sandbox through each node, and checks that those of before, and their tokens, work through all."""
    for node in fleet.nodes:
        key = f"{name} through {node.name}"
        sandbox = node.client.call("POST", "/v1/sandboxes", {"template": "base"}, key=key).expect(201).json()["id"]
        again = fleet.nodes[0].client.call("POST", "/v1/sandboxes", {"template": "base"}, key=key).expect(201).json()["id"]
        assert again == sandbox, f"the key {key!r} made two sandboxes"
        made = [*made, sandbox]
    for node in fleet.nodes:
        assert node.client.living() == set(made), f"{name}: {node.name} lists {node.client.living()}, there are {made}"
        for sandbox in made:
            assert node.client.run(sandbox, "echo here") == "here\n"
    last = fleet.nodes[-1]
    last.cli("fleet", "drain", "--keep-sandboxes", last.name)
    processes.until("all nodes know the drain", lambda: all(is_refused_by(node, last) for node in fleet.nodes))
    last.cli("fleet", "undrain", last.name)
    fleet.wait_until_healed()
    return made


def is_refused_by(node, drained):
    """Whether a create through a node does not land on the drained one."""
    sandbox = node.client.create()
    landed = (drained.home / "sandboxes" / sandbox).exists()
    node.client.delete(sandbox)
    return not landed


if __name__ == "__main__":
    main(Path(os.environ["FLEET_KEPT"]))
