"""One request, one answer, nothing hidden: no retry, no redirect, no decoding."""

import http.client
import json
import socket
import time
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import urlencode

from .server import HOST, PORT, TOKEN


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def content_type(self):
        return (self.headers.get("Content-Type") or "").lower().replace(" ", "")

    @property
    def error(self):
        """The sentence of a flat `{"error": "…"}`; anything else is a broken promise."""
        error = self.json()["error"]
        assert isinstance(error, str) and error, f"`error` must be a sentence, not {error!r}"
        return error


def call(method, path, *, token=TOKEN, body=None, query=None, headers=None, timeout=60):
    """Sends exactly this. A body that is not bytes becomes JSON."""
    sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent["Content-Type"] = "application/json"
    sent.update(headers or {})
    target = f"{path}?{urlencode(query)}" if query else path
    connection = http.client.HTTPConnection(HOST, PORT, timeout=timeout)
    try:
        connection.request(method, target, body=body, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


@dataclass
class Transcript:
    """Every byte the server sent, and when."""

    pieces: list = field(default_factory=list)

    @property
    def bytes(self):
        return b"".join(data for _, data in self.pieces)

    @property
    def interim(self):
        return self.bytes.count(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def final_status(self):
        rest = self.bytes.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
        return int(rest.split(b" ", 2)[1])

    def longest_silence(self, started, ended):
        moments = [started, *(moment for moment, _ in self.pieces), ended]
        return max(after - before for before, after in pairwise(moments))


def listen(request, seconds, until=lambda transcript: False):
    """Sends raw bytes and notes what comes back, till the end, `until`, or the time is up."""
    transcript = Transcript()
    deadline = time.monotonic() + seconds
    with socket.create_connection((HOST, PORT), timeout=10) as connection:
        connection.sendall(request)
        while not until(transcript) and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            try:
                data = connection.recv(65536)
            except TimeoutError:
                break
            if not data:
                break
            transcript.pieces.append((time.monotonic(), data))
    return transcript


def raw_request(method, path, *, headers=(), body=b"", token=TOKEN):
    """The bytes of a request; `headers` may repeat, or lie about the length."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{PORT}", f"Authorization: Bearer {token}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if not any(name.lower() == "content-length" for name, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
