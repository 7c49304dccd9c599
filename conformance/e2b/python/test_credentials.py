"""Credentials: what comes from an API token ends with it, and none of ours reaches a server in a sandbox."""

import os
import threading
import time
import urllib.parse

import pytest
from e2b import AuthenticationException, Sandbox, SandboxException
from e2b_code_interpreter import Sandbox as Interpreter
from support import native, wire
from support.waiting import until

SHOW_REQUEST = """
import http.server
class Show(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = (self.path + "\\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer(("", 3000), Show).serve_forever()
"""


@pytest.fixture
def other():
    """A second token of the same workspace, and how to revoke it."""
    made = native.call("POST", "/v1/me/tokens", {"scope": "run", "name": "short-lived"})

    class Other:
        token = made["token"]
        key = "e2b_" + made["token"].encode().hex()

        @staticmethod
        def revoke():
            native.call("DELETE", f"/v1/me/tokens/{made['token'][:12]}")

    return Other


def test_a_sandboxes_tokens_end_with_the_token_that_asked_for_them(other):
    made = Interpreter.create(timeout=300, api_key=other.key)
    kept = Interpreter.connect(made.sandbox_id)
    try:
        assert made.run_code("6 * 7").text == "42" and made.create_code_context().id
        made.files.write("/tmp/f", "here")
        url = urllib.parse.urlsplit(made.download_url("/tmp/f"))
        signed = f"{url.path}?{url.query}"
        assert wire.send("GET", signed, wire.place(made.sandbox_id)).body == b"here"
        assert wire.send("GET", signed).body == b"here", "a signed URL needs no header"
        other.revoke()
        assert wire.send("GET", signed, wire.place(made.sandbox_id)).status == 401
        with pytest.raises((AuthenticationException, SandboxException)):
            made.files.read("/tmp/f")
        with pytest.raises(Exception):
            made.run_code("1")
        with pytest.raises(Exception):
            made.create_code_context()
        assert kept.files.read("/tmp/f") == "here" and kept.run_code("1").text == "1", "another token still works"
    finally:
        kept.kill()


def test_open_streams_end_with_the_token(other):
    made = Sandbox.create(timeout=300, api_key=other.key)
    kept = Sandbox.connect(made.sandbox_id)
    try:
        ended = []
        seen = threading.Event()
        command = made.commands.run(
            "while :; do echo tick; sleep 0.2; done", background=True, timeout=0
        )

        def follow():
            try:
                command.wait(on_stdout=lambda _: seen.set())
            except Exception as error:
                ended.append((time.monotonic(), error))

        follower = threading.Thread(target=follow)
        follower.start()
        assert seen.wait(20)
        revoked = time.monotonic()
        other.revoke()
        follower.join(20)
        assert ended and ended[0][0] - revoked < 5
        assert "tick" not in kept.commands.run("true").stdout, "the sandbox itself goes on"
    finally:
        kept.kill()


def test_contexts_need_a_token(interpreter):
    at = wire.place(interpreter.sandbox_id, 49999)
    context = interpreter.create_code_context()
    for method, path in [
        ("GET", "/contexts"),
        ("POST", "/contexts"),
        ("POST", f"/contexts/{context.id}/restart"),
        ("DELETE", f"/contexts/{context.id}"),
    ]:
        assert wire.send(method, path, at, {} if method == "POST" else None).status == 403, path
        wrong = {**at, "E2B-Traffic-Access-Token": "wrong"}
        assert wire.send(method, path, wrong, {} if method == "POST" else None).status == 403, path
    assert context.id in [found.id for found in interpreter.list_code_contexts()]


def test_no_credential_of_ours_reaches_a_server(make):
    made = make()
    made.files.write("show.py", SHOW_REQUEST)
    made.commands.run("python3 show.py", background=True, timeout=0)
    own = native.call("POST", f"/v1/sandboxes/{made.sandbox_id}/preview-token", {"port": 3000})["token"]
    token, access = os.environ["SANDLING_TOKEN"], made._envd_access_token
    secrets = [token, token.encode().hex(), access, made.traffic_access_token, own]
    sent = {
        "Authorization": f"Bearer {token}",
        "X-Api-Key": os.environ["E2B_API_KEY"],
        "X-Access-Token": access,
        "E2B-Traffic-Access-Token": made.traffic_access_token,
        "X-Other": token,
        "Cookie": f"sandling_preview={own}; theirs=1",
        "X-Theirs": "kept",
    }
    query = f"/?a=1&access_token={token}&sandling_token={own}"
    ways = {
        "by host": (query, {"Host": made.get_host(3000)}),
        "by headers": (query, wire.place(made.sandbox_id, 3000)),
        "by path": (f"/v1/sandboxes/{made.sandbox_id}/proxy/3000{query}", {}),
        "by token": (f"/v1/p/{own}{query}", {}),
    }
    until("the server", lambda: wire.send("GET", *ways["by headers"]).status == 200)
    for way, (path, place) in ways.items():
        answer = wire.send("GET", path, {**sent, **place})
        text = answer.body.decode()
        assert answer.status == 200 and "X-Theirs: kept" in text.title().replace("Kept", "kept"), (way, text)
        assert "a=1" in text and "theirs=1" in text, (way, text)
        assert [secret for secret in secrets if secret in text] == [], way


def test_a_token_that_may_only_look_wakes_nothing(make):
    made = make()
    token = native.call("POST", "/v1/me/tokens", {"scope": "read"})["token"]
    made.pause()
    path = f"/v1/sandboxes/{made.sandbox_id}/fs?path=/"
    answer = wire.send("GET", path, {"Authorization": f"Bearer {token}"})
    assert answer.status == 409, answer
    assert native.call("GET", f"/v1/sandboxes/{made.sandbox_id}")["status"] == "hibernated"
    native.call("DELETE", f"/v1/me/tokens/{token[:12]}")
