"""A client that creates sandboxes, runs commands in them, deletes them, and remembers the answers.

It records every request before it sends it. If the server dies before it answers, [`Worker.settle`] retries with the
same idempotency key when the server is back. Acknowledged changes must hold, and nothing may happen twice.
"""

import http.client
import random
import uuid
from dataclasses import dataclass, field

#: Errors of a server that is gone or stopping.
CUT_OFF = (OSError, http.client.HTTPException)
#: How many sandboxes a worker has at once.
MOST_SANDBOXES = 2


@dataclass
class Sandbox:
    id: str
    #: Commands that must have run exactly once.
    ran: list = field(default_factory=list)


class Worker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.alive = []
        #: Sandboxes whose create the server acknowledged.
        self.acknowledged = []
        self.deleted = []
        self.ended = []
        #: The running request, and how to find out its result.
        self.open = None
        #: Creates that may have succeeded although the ID is unknown.
        self.lost_creates = 0
        self.done = {"create": 0, "exec": 0, "delete": 0}

    def work(self, client):
        """Works until the server dies."""
        try:
            while True:
                self.step(client)
        except CUT_OFF:
            return

    def step(self, client):
        if not self.alive or (len(self.alive) < MOST_SANDBOXES and self.random.random() < 0.3):
            self.create(client, uuid.uuid4().hex)
        elif self.random.random() < 0.8:
            # Some commands still run when the server dies.
            line = self.random.choice(["true", "true", "sleep 0.3"])
            self.run(client, self.random.choice(self.alive), uuid.uuid4().hex, line)
        else:
            self.delete(client, self.random.choice(self.alive))

    def create(self, client, key):
        self.open = lambda client: self.create(client, key)
        answer = client.call("POST", "/v1/sandboxes", {"template": "base"}, key=key)
        self.open = None
        if answer.status == 409 and answer.code == "key_interrupted":
            made = answer.json().get("object")
            if made is None:
                self.lost_creates += 1
                return
        else:
            # A host without capacity may refuse before it creates anything.
            made = answer.expect(201, 429, 503, 507).json().get("id")
            if made and not answer.headers["Idempotency-Replayed"]:
                self.acknowledged.append(made)
        if made:
            self.alive.append(Sandbox(made))
            self.done["create"] += 1

    def run(self, client, sandbox, token, line):
        self.open = lambda client: self.run(client, sandbox, token, line)
        path = f"/v1/sandboxes/{sandbox.id}"
        request = {"cmd": f"echo {token} >> /root/ran; {line}", "id": token}
        answer = client.call("POST", f"{path}/exec", request, key=token)
        if answer.status == 409 and answer.code == "key_interrupted":
            answer = client.call("GET", f"{path}/execs/{token}/result", query={"wait": "true"})
        self.open = None
        if answer.expect(200, 404).status == 200:
            assert answer.json()["exit_code"] == 0, answer.body
            sandbox.ran.append(token)
            self.done["exec"] += 1

    def delete(self, client, sandbox):
        self.open = lambda client: self.delete(client, sandbox)
        client.call("DELETE", f"/v1/sandboxes/{sandbox.id}").expect(204, 404)
        self.open = None
        self.alive.remove(sandbox)
        self.deleted.append(sandbox.id)
        self.done["delete"] += 1

    def settle(self, client):
        """Finds out the result of the interrupted request."""
        if self.open:
            self.open(client)

    def check(self, client):
        """Checks that everything acknowledged holds. A sandbox may have ended, if the server says so."""
        for sandbox in list(self.alive):
            found = client.call("GET", f"/v1/sandboxes/{sandbox.id}").expect(200, 404)
            if found.status == 404:
                ends = [event for event in client.events(sandbox.id) if event["type"] == "sandbox.ended"]
                assert ends, f"{sandbox.id} is gone, and nobody says why"
                self.alive.remove(sandbox)
                self.ended.append(ends[-1])
                continue
            ran = client.run(sandbox.id, "cat /root/ran 2>/dev/null || true").split()
            assert sorted(ran) == sorted(sandbox.ran), f"{sandbox.id} ran {ran}, acknowledged were {sandbox.ran}"
        for gone in self.deleted:
            client.call("GET", f"/v1/sandboxes/{gone}").expect(404)
