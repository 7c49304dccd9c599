"""Servers inside a sandbox, from outside."""

import socket

import pytest

from support.server import API, HOST, PORT, TOKEN
from support.waiting import until
from support.wire import call

GUEST_PORT = 8123


@pytest.fixture(scope="module")
def serving(sandbox):
    """The shared sandbox with a web server in it."""
    sandbox.filesystem.write("/srv/conformance/hello.txt", "hello from inside\n")
    command = f"setsid python3 -m http.server {GUEST_PORT} --directory /srv/conformance"
    sandbox.exec(f"{command} >/dev/null 2>&1 </dev/null &", check=True)
    until("the port is listed", lambda: GUEST_PORT in sandbox.preview_urls(), 40)
    return sandbox


def test_preview_url_names_the_port_and_the_sandbox(client, sandbox, monkeypatch):
    monkeypatch.setattr(client, "preview_host", f"localhost:{PORT}", raising=False)
    assert sandbox.preview_url(3000, scheme="http") == f"http://3000-{sandbox.id}.localhost:{PORT}"
    with pytest.raises(ValueError):
        sandbox.preview_url(70000)


def test_preview_urls_lists_the_ports_that_are_open(serving):
    assert serving.preview_urls()[GUEST_PORT] == serving.preview_url(GUEST_PORT)


def test_a_port_is_an_object_with_a_number(serving):
    answer = call("GET", f"/v1/sandboxes/{serving.id}/ports")
    assert answer.status == 200
    listed = answer.json()
    ports = listed["ports"] if isinstance(listed, dict) else listed
    assert GUEST_PORT in [port["port"] for port in ports]
    assert all(type(port["port"]) is int for port in ports)


def test_nothing_listens_in_a_fresh_sandbox(make):
    assert make().preview_urls() == {}


def test_the_proxy_reaches_the_server_with_the_key(serving):
    answer = call("GET", f"/v1/sandboxes/{serving.id}/proxy/{GUEST_PORT}/hello.txt")
    assert (answer.status, answer.body) == (200, b"hello from inside\n")


def test_the_proxy_is_closed_without_the_key(serving):
    answer = call("GET", f"/v1/sandboxes/{serving.id}/proxy/{GUEST_PORT}/hello.txt", token=None)
    assert answer.status == 401


def test_a_preview_host_is_never_open_by_default(serving):
    host = {"Host": f"{GUEST_PORT}-{serving.id}.localhost:{PORT}"}
    answer = call("GET", "/hello.txt", token=None, headers=host)
    assert answer.status in (401, 403) and b"hello from inside" not in answer.body


def test_a_preview_token_opens_one_port_of_one_sandbox(serving):
    made = call("POST", f"/v1/sandboxes/{serving.id}/preview-token", body={"port": GUEST_PORT, "ttl_seconds": 60})
    assert made.status in (200, 201), made.body
    token = made.json()
    assert (token["sandbox_id"], token["port"]) == (serving.id, GUEST_PORT)
    assert token["token"] and token["url"] and token["expires_at"]
    answer = call("GET", f"/v1/p/{token['token']}/hello.txt", token=None)
    assert (answer.status, answer.body) == (200, b"hello from inside\n")
    forged = token["token"][:-4] + ("AAAA" if token["token"][-4:] != "AAAA" else "BBBB")
    answer = call("GET", f"/v1/p/{forged}/hello.txt", token=None)
    assert answer.status in (401, 403, 404)


def test_a_preview_token_that_was_revoked_opens_nothing(serving):
    made = call("POST", f"/v1/sandboxes/{serving.id}/preview-token", body={"port": GUEST_PORT}).json()
    other = call("POST", f"/v1/sandboxes/{serving.id}/preview-token", body={"port": GUEST_PORT}).json()

    def seen(token):
        return call("GET", f"/v1/p/{token['token']}/hello.txt", token=None).status

    assert (seen(made), seen(other)) == (200, 200)
    assert call("DELETE", f"/v1/preview-tokens/{made['id']}").status == 204
    assert (seen(made), seen(other)) == (401, 200)
    host = {"Host": f"{GUEST_PORT}-{serving.id}.localhost:{PORT}", "X-Sandling-Preview-Token": made["token"]}
    assert call("GET", "/hello.txt", token=None, headers=host).status == 401
    assert call("DELETE", f"/v1/preview-tokens/{other['token']}").status == 204
    assert seen(other) == 401


ECHO_PORT = 8124
#: Answers with the head of the request. It accepts upgrades and then echoes everything.
ECHO = """
import base64, hashlib, socketserver

class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += self.rfile.readline()
        fields = dict(line.split(": ", 1) for line in head.decode().split("\\r\\n")[1:] if ": " in line)
        fields = {name.lower(): value for name, value in fields.items()}
        if fields.get("upgrade", "").lower() != "websocket":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(head) + head)
            return
        key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
            "Sec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n").encode())
        while data := self.request.recv(4096):
            self.wfile.write(data)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

Server(("127.0.0.1", 8124), Echo).serve_forever()
"""


@pytest.fixture(scope="module")
def echoing(sandbox):
    """The shared sandbox with an echo server."""
    sandbox.filesystem.write("/srv/conformance/echo.py", ECHO)
    sandbox.exec("setsid python3 /srv/conformance/echo.py >/tmp/echo.log 2>&1 </dev/null &", check=True)
    until("the port is listed", lambda: ECHO_PORT in sandbox.preview_urls(), 40)
    made = call("POST", f"/v1/sandboxes/{sandbox.id}/preview-token", body={"port": ECHO_PORT}).json()
    return sandbox, made["token"]


def test_no_token_of_ours_reaches_a_preview_and_its_own_does(echoing):
    sandbox, preview = echoing
    by_host = {"Host": f"{ECHO_PORT}-{sandbox.id}.localhost:{PORT}"}
    ours = {"X-API-Key": TOKEN, "Cookie": f"sandling_preview={preview}; own=1", "X-Sandling-Preview-Token": preview,
            "Referer": f"http://x/?sandling_token={preview}"}
    for path, headers in (
        (f"/v1/p/{preview}/a?access_token={TOKEN}&own=2", ours),
        (f"/v1/sandboxes/{sandbox.id}/proxy/{ECHO_PORT}/a?sandling_token={preview}&own=2", ours),
        (f"/a?sandling_token={preview}&own=2", ours | by_host),
        (f"/a?own=2", ours | by_host),
    ):
        answer = call("GET", path, headers=headers)
        assert answer.status == 200, (path, answer.body)
        head = answer.body.decode()
        assert TOKEN not in head and preview not in head, (path, head)
        assert "own=1" in head and "own=2" in head, head
    own = call("GET", f"/v1/p/{preview}/", token="the-pages-own", headers={"X-API-Key": "its-own-key"}).body.decode()
    assert "Bearer the-pages-own" in own and "its-own-key" in own, own


def test_a_websocket_of_a_preview_goes_both_ways(echoing):
    sandbox, preview = echoing
    frame = b"\x81\x85" + bytes(4) + b"hello"
    for path, host in ((f"/v1/p/{preview}/socket", f"{HOST}:{PORT}"),
                       (f"/socket?sandling_token={preview}", f"{ECHO_PORT}-{sandbox.id}.localhost:{PORT}")):
        with socket.create_connection((HOST, PORT), timeout=30) as stream:
            stream.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
            received = b""
            while b"\r\n\r\n" not in received:
                received += stream.recv(4096)
            assert received.startswith(b"HTTP/1.1 101"), received
            assert b"s3pplmbitxaq9kygzzhzrbk+xoo=" in received.lower(), received
            stream.sendall(frame)
            received = received.split(b"\r\n\r\n", 1)[1]
            while len(received) < len(frame):
                received += stream.recv(4096)
            assert received == frame


def test_a_port_where_nobody_listens_is_a_clear_error(serving):
    answer = call("GET", f"/v1/sandboxes/{serving.id}/proxy/9/")
    assert answer.status == 502
    assert TOKEN not in answer.error and API not in answer.error and HOST not in answer.error


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_that_cannot_be_one_is_refused(serving, port):
    assert call("GET", f"/v1/sandboxes/{serving.id}/proxy/{port}/").status in (400, 404)
