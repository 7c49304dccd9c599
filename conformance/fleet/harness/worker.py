"""A client that works through any node while they fail, and knows what it was promised.

It repeats a request that failed with the same idempotency key, through another node. So at the end each request has one
outcome, which all nodes must agree on.
"""

import http.client
import random
import uuid
from dataclasses import dataclass, field

from support.processes import until

UNANSWERED = (OSError, http.client.HTTPException)
#: The fleet cannot do it now, and says so: no quorum, no lease, no node, or too much to do.
NOT_NOW = (429, 503, 507)
#: A client gives up and asks another node.
PATIENCE = 15.0
SETTLED_WITHIN = 120.0
MOST_SANDBOXES = 3
RAN = "/root/ran"


@dataclass
class Sandbox:
    id: str
    key: str
    #: Commands that must have run exactly once, in this order.
    ran: list = field(default_factory=list)


class Worker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.alive, self.deleted, self.ended = [], [], []
        #: The request that has no outcome yet.
        self.open = None
        #: By key, the sandboxes that any answer named.
        self.made = {}
        #: Creates whose key says that nobody knows how they ended.
        self.interrupted = 0
        self.done = {"create": 0, "exec": 0, "read": 0, "delete": 0, "refused": 0, "unanswered": 0}

    def work(self, nodes, ended):
        """Works until `ended`. The last request may stay open."""
        while not ended.is_set():
            if self.open is None:
                self.open = self.choose()
            if not self.attempt(nodes):
                ended.wait(0.2)

    def settle(self, nodes):
        """Repeats the open request until it has an outcome. All nodes are healthy."""
        until("the last request has an outcome", lambda: self.attempt(nodes), SETTLED_WITHIN)

    def attempt(self, nodes):
        """Tries the open request once, through any node. Returns whether none is open."""
        if self.open is None:
            return True
        try:
            has_outcome = self.open(self.random.choice(nodes).client)
        except UNANSWERED:
            self.done["unanswered"] += 1
            return False
        if has_outcome:
            self.open = None
        else:
            self.done["refused"] += 1
        return has_outcome

    def choose(self):
        chance = self.random.random()
        if not self.alive or (len(self.alive) < MOST_SANDBOXES and chance < 0.25):
            # Sometimes a client repeats a create that has succeeded.
            again = self.alive and self.random.random() < 0.3
            key = self.random.choice(self.alive).key if again else uuid.uuid4().hex
            return lambda client: self.create(client, key)
        sandbox, token = self.random.choice(self.alive), uuid.uuid4().hex
        if chance < 0.75:
            line = self.random.choice(["true", "true", "sleep 1"])
            return lambda client: self.run(client, sandbox, token, line)
        return (lambda client: self.read(client, sandbox)) if chance < 0.9 else lambda client: self.delete(client, sandbox)

    def create(self, client, key):
        answer = client.call("POST", "/v1/sandboxes", {"template": "base"}, key=key, timeout=PATIENCE)
        if answer.status in NOT_NOW or (answer.status == 409 and answer.code == "key_in_progress"):
            return False
        if answer.status == 409 and answer.code == "key_interrupted":
            made = answer.json().get("object")
            self.interrupted += made is None
        else:
            made = answer.expect(201).json()["id"]
        if made is None:
            return True
        others = self.made.setdefault(key, made)
        assert others == made, f"the key {key} made two sandboxes: {others} and {made}"
        if not any(sandbox.id == made for sandbox in self.alive):
            self.alive.append(Sandbox(made, key))
            self.done["create"] += 1
        return True

    def run(self, client, sandbox, token, line):
        path = f"/v1/sandboxes/{sandbox.id}"
        request = {"cmd": f"echo {token} >> {RAN}; {line}", "id": token}
        answer = client.call("POST", f"{path}/exec", request, key=token, timeout=PATIENCE)
        if answer.status in NOT_NOW or (answer.status == 409 and answer.code == "key_in_progress"):
            return False
        if answer.status == 409 and answer.code == "key_interrupted":
            answer = client.call("GET", f"{path}/execs/{token}/result", query={"wait": "true"}, timeout=PATIENCE)
            if answer.status in NOT_NOW:
                return False
        if ended_meanwhile(answer):
            return True
        if answer.expect(200, 404).status == 200:
            assert answer.json()["exit_code"] == 0, answer.body
            sandbox.ran.append(token)
            self.done["exec"] += 1
        return True

    def read(self, client, sandbox):
        found = client.call("GET", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": RAN}, timeout=PATIENCE)
        if found.status in NOT_NOW:
            return False
        if ended_meanwhile(found):
            return True
        if found.expect(200, 404).status == 200:
            assert found.body.decode().split() == sandbox.ran, f"{sandbox.id} has {found.body}, acknowledged {sandbox.ran}"
            self.done["read"] += 1
        return True

    def delete(self, client, sandbox):
        answer = client.call("DELETE", f"/v1/sandboxes/{sandbox.id}", timeout=PATIENCE)
        if answer.status in NOT_NOW:
            return False
        answer.expect(204, 404)
        self.alive.remove(sandbox)
        self.deleted.append(sandbox.id)
        self.done["delete"] += 1
        return True

    def check(self, nodes):
        """Checks through every node that everything acknowledged holds. A sandbox may have ended, if the fleet says why."""
        for sandbox in list(self.alive):
            answers = [node.client.call("GET", f"/v1/sandboxes/{sandbox.id}").expect(200, 404) for node in nodes]
            statuses = {answer.status for answer in answers}
            assert len(statuses) == 1, f"{sandbox.id}: the nodes disagree: {[answer.status for answer in answers]}"
            if statuses == {404}:
                self.check_end(sandbox, nodes)
                continue
            for node in nodes:
                ran = node.client.run(sandbox.id, f"cat {RAN} 2>/dev/null || true").split()
                assert ran == sandbox.ran, f"{sandbox.id} ran {ran}, acknowledged were {sandbox.ran}"
        for node in nodes:
            for gone in self.deleted:
                node.client.call("GET", f"/v1/sandboxes/{gone}").expect(404)

    def check_end(self, sandbox, nodes):
        for node in nodes:
            ends = [event for event in node.client.events(sandbox.id) if event["type"] == "sandbox.ended"]
            assert ends, f"{sandbox.id} is gone, and {node.name} does not say why"
        self.alive.remove(sandbox)
        self.ended.append(ends[-1])


def ended_meanwhile(answer):
    """Whether the machine ended during the request, for instance because its time to live was over. The next check asks why,
    and if the sandbox is still there, it finds what ran in it without an acknowledgement."""
    return answer.status == 502 and answer.code == "guest_died"
