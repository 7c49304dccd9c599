"""One request, one answer; no retry."""

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)

    def expect(self, *statuses):
        assert self.status in statuses, f"wanted {statuses}, got {self.status}: {self.body[:500]!r}"
        return self

    @property
    def code(self):
        return self.json()["code"]


class Client:
    def __init__(self, port, token, connection=http.client.HTTPConnection):
        """`connection` opens connections, if they do not start in the network namespace of this process."""
        self.port, self.token, self.connection = port, token, connection

    def call(self, method, path, body=None, *, key=None, query=None, timeout=120):
        """Raises `OSError` or `http.client.HTTPException` if the server dies during the request."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        connection = self.connection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def create(self, template="base", **more):
        return self.call("POST", "/v1/sandboxes", {"template": template, **more}).expect(201).json()["id"]

    def run(self, sandbox, cmd, **more):
        """The output of a command, which must succeed."""
        answer = self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"cmd": cmd, **more}).expect(200).json()
        assert answer["exit_code"] == 0, answer
        return answer["stdout"]

    def delete(self, sandbox):
        return self.call("DELETE", f"/v1/sandboxes/{sandbox}").expect(204)

    def living(self):
        return {sandbox["id"] for sandbox in self.call("GET", "/v1/sandboxes").expect(200).json()}

    def events(self, sandbox):
        return self.call("GET", f"/v1/sandboxes/{sandbox}/events").expect(200).json()["events"]
