"""Somebody who makes sandboxes, runs commands in them and ends them, and remembers what was answered.

Every request is noted before it is sent. If the server dies before it answers, [`Worker.settle`] asks again, with the
same key, once there is a server again: what was acknowledged must hold, and nothing may have happened twice.
"""

import http.client
import random
import uuid
from dataclasses import dataclass, field

#: The server is gone, or going.
CUT_OFF = (OSError, http.client.HTTPException)
#: What a worker keeps at once.
MOST_SANDBOXES = 2


@dataclass
class Sandbox:
    id: str
    #: Commands that ran, and that must have run once.
    ran: list = field(default_factory=list)


class Worker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.alive = []
        #: What was made, as the server itself said before it could die.
        self.acknowledged = []
        self.deleted = []
        self.ended = []
        #: The request that is under way: how to find out what became of it.
        self.open = None
        #: Creates that may have taken effect without anybody knowing the id.
        self.lost_creates = 0
        self.done = {"create": 0, "exec": 0, "delete": 0}

    def work(self, client):
        """Goes on until the server dies."""
        try:
            while True:
                self.step(client)
        except CUT_OFF:
            return

    def step(self, client):
        if not self.alive or (len(self.alive) < MOST_SANDBOXES and self.random.random() < 0.3):
            self.create(client, uuid.uuid4().hex)
        elif self.random.random() < 0.8:
            # Some commands are still at work when the server dies.
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
            # A host that is short of something may say so, before anything is made.
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
        """Finds out what became of the request that was cut off."""
        if self.open:
            self.open(client)

    def check(self, client):
        """Everything is as it was acknowledged. A sandbox may have ended, if that is said."""
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
