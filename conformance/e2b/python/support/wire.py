"""Requests that no client sends, for rules that hold for every caller."""

import http.client
import json
import os
import urllib.parse
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


def send(method, path, headers=None, body=None):
    """Sends one request to the server and answers with whatever comes."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(os.environ["SANDLING_API"]).netloc, timeout=60)
    try:
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())
    finally:
        connection.close()


def place(sandbox_id, port=49983, **more):
    """The headers that say where in which sandbox a request goes."""
    return {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": str(port), **more}


def key():
    return {"X-API-KEY": os.environ["E2B_API_KEY"]}


def token(sandbox):
    """What opens this sandbox."""
    return {"X-Access-Token": sandbox._envd_access_token}


def framed(message):
    text = json.dumps(message).encode()
    return b"\0" + len(text).to_bytes(4, "big") + text
