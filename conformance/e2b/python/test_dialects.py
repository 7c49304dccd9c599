"""One sandbox through both APIs, and its servers from outside."""

import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import pytest
from e2b import NotFoundException, RateLimitException, Sandbox, SandboxException, SandboxQuery
from e2b_code_interpreter import Sandbox as Interpreter
from support import native, wire
from support.waiting import until


def test_a_sandbox_is_the_same_in_both(make):
    made = make(metadata={"from": "e2b"})
    own = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}")
    assert own["id"].replace("-", "") == made.sandbox_id and own["metadata"] == {"from": "e2b"}
    native.call("POST", f"/v1/sandboxes/{own['id']}/exec", {"cmd": "echo native >/tmp/from"})
    assert made.files.read("/tmp/from") == "native\n"
    audited = native.call("GET", "/v1/audit?limit=1000")["items"]
    assert any(e["action"] == "sandbox.create" and e["object"] == own["id"] for e in audited)


def test_what_happened_to_it_is_told_by_the_other(make):
    made = make()
    made.pause()
    made.connect()
    made.kill()
    events = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/events")["events"]
    wanted = ["sandbox.created", "sandbox.hibernated", "sandbox.woken", "sandbox.ended"]
    assert [event["type"] for event in events if event["type"] in wanted] == wanted
    assert events[-1]["payload"]["why"]


def test_a_sandbox_of_the_other_dialect_is_connected_to():
    own = native.call("POST", "/v1/sandboxes", {"template": "base", "ttl_seconds": 300})
    connected = Sandbox.connect(own["id"].replace("-", ""))
    try:
        assert connected.commands.run("echo here").stdout == "here\n"
    finally:
        connected.kill()


def test_a_sandbox_of_the_other_dialect_is_listed():
    own = native.call("POST", "/v1/sandboxes", {"template": "base", "ttl_seconds": 300, "metadata": {"by": "native"}})
    try:
        [found] = Sandbox.list(query=SandboxQuery(metadata={"by": "native"})).next_items()
        assert found.sandbox_id == own["id"].replace("-", "") and found.template_id == "base"
    finally:
        native.call("DELETE", f"/v1/sandboxes/{own['id']}")


def test_workspaces_are_apart_and_a_quota_holds_in_both(make):
    name = f"other-{uuid.uuid4().hex[:8]}"
    native.call("POST", "/v1/workspaces", {"name": name})
    token = native.call("POST", f"/v1/workspaces/{name}/tokens", {"scope": "run"})["token"]
    other = {"api_key": "e2b_" + token.encode().hex()}
    native.call("PUT", f"/v1/workspaces/{name}/quota", {"sandboxes": 1})
    mine, theirs = make(), Sandbox.create(**other)
    try:
        with pytest.raises(NotFoundException):
            Sandbox.connect(mine.sandbox_id, **other)
        assert [found.sandbox_id for found in Sandbox.list(**other).next_items()] == [theirs.sandbox_id]
        assert theirs.sandbox_id not in [found.sandbox_id for found in Sandbox.list().next_items()]
        begun = time.monotonic()
        with pytest.raises(RateLimitException):
            Sandbox.create(**other)
        assert time.monotonic() - begun < 5, "it was sent again, to no avail"
        with pytest.raises(urllib.error.HTTPError) as caught:
            native.call("POST", "/v1/sandboxes", {"template": "base"}, {"Authorization": f"Bearer {token}"})
        assert caught.value.code == 429
    finally:
        theirs.kill(**other)
        native.call("DELETE", f"/v1/workspaces/{name}")


def test_what_a_workspace_opens_its_new_sandboxes_reach():
    name = f"open-{uuid.uuid4().hex[:8]}"
    native.call("POST", "/v1/workspaces", {"name": name})
    token = native.call("POST", f"/v1/workspaces/{name}/tokens", {"scope": "admin"})["token"]
    own = {"Authorization": f"Bearer {token}"}
    try:
        native.call("PUT", "/v1/network", {"allow": ["pypi"]}, own)
        with Sandbox.create(api_key=token, allow_internet_access=True) as made:

            def reached(*parts):
                policy = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network", headers=own)
                return [policy["mode"], *(policy[part] for part in parts)]

            assert reached("allow") == ["allow", ["pypi"]]
            made.update_network({"deny_out": ["0.0.0.0/0"]})
            assert reached() == ["deny"]
            # An empty update goes back to the default.
            made.update_network({})
            assert reached("allow") == ["allow", ["pypi"]]
            # What is denied is taken from what is open, and closes nothing else.
            native.call("PUT", "/v1/network", {"mode": "open"}, own)
            assert reached() == ["open"]
            made.update_network({"deny_out": ["192.0.2.0/24"]})
            assert reached("deny") == ["open", ["192.0.2.0/24"]]
    finally:
        native.call("DELETE", f"/v1/workspaces/{name}")


ECHO = '''
import base64, hashlib, socket
server = socket.create_server(("127.0.0.1", 3000))
connection, _ = server.accept()
head = b""
while b"\\r\\n\\r\\n" not in head:
    head += connection.recv(4096)
key = next(line.split(b": ")[1] for line in head.split(b"\\r\\n") if line.lower().startswith(b"sec-websocket-key"))
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
connection.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                   b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
connection.sendall(b"\\x81\\x05" + connection.recv(5))
'''


def test_a_server_may_speak_otherwise_after_a_while(make):
    made = make()
    made.files.write("echo.py", ECHO)
    made.commands.run("python3 echo.py", background=True, timeout=0)
    until("the server", lambda: "0BB8" in made.commands.run("cat /proc/net/tcp").stdout)
    address = urllib.parse.urlsplit(os.environ["SANDLING_API"])
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(
            f"GET / HTTP/1.1\r\nHost: {made.get_host(3000)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101")
        connection.sendall(b"hello")
        said = answer.partition(b"\r\n\r\n")[2]
        while len(said) < 7:
            said += connection.recv(100)
        assert said == b"\x81\x05hello"


def test_closed_servers_need_the_traffic_token(make):
    made = make(network={"allow_public_traffic": False})
    assert made.traffic_access_token
    made.commands.run("python3 -m http.server 3000", background=True, timeout=0)

    def status(**headers):
        return wire.send("GET", "/", {"Host": made.get_host(3000), **headers}).status

    until("the server", lambda: status(**{"E2B-Traffic-Access-Token": made.traffic_access_token}) == 200)
    assert status() == 403 and status(**{"E2B-Traffic-Access-Token": "wrong"}) == 403
    with Interpreter.create(timeout=120, network={"allow_public_traffic": False}) as closed:
        assert closed.run_code("6 * 7").text == "42" and closed.create_code_context().id
        assert wire.send("GET", "/contexts", wire.place(closed.sandbox_id, 49999)).status == 403


def test_a_server_is_seen_at_its_host(make):
    made = make()
    made.commands.run("mkdir s && cd s && echo seen >f && python3 -m http.server 3000", background=True, timeout=0)
    assert made.get_host(3000).startswith(f"3000-{made.sandbox_id}.")

    def fetch(port):
        request = urllib.request.Request(os.environ["SANDLING_API"] + "/f", headers={"Host": made.get_host(port)})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def seen():
        try:
            return fetch(3000) == b"seen\n"
        except urllib.error.HTTPError as error:
            assert error.code == 502 and b"port is not open" in error.read()

    until("the server", seen)
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(3001)
    assert caught.value.code == 502 and caught.value.headers["Content-Type"] == "application/json"
    page = wire.send("GET", "/", {"Host": made.get_host(3001), "Accept": "text/html,*/*;q=0.8"})
    assert page.status == 502 and b"<h1>Nothing answers here yet</h1>" in page.body


SEEN_HOST = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())
HTTPServer(("127.0.0.1", 3000), Handler).serve_forever()
"""


@pytest.mark.parametrize("mask, seen", (("${PORT}-app.example.com", b"3000-app.example.com"), (None, b"localhost:3000")))
def test_a_server_sees_the_host_that_its_sandbox_names(make, mask, seen):
    made = make(network={"mask_request_host": mask} if mask else None)
    made.files.write("host.py", SEEN_HOST)
    made.commands.run("python3 host.py", background=True, timeout=0)
    headers = {"Host": made.get_host(3000)}
    until("the server", lambda: wire.send("GET", "/", headers).status == 200)
    # Names are written as simple servers look for them.
    assert b"Host: " + seen in wire.send("GET", "/", headers).body.splitlines()
    assert made.get_info().network.get("mask_request_host") == mask
    with pytest.raises(SandboxException, match="is no host name"):
        make(network={"mask_request_host": "no host"})


HTTPS_SERVER = """
openssl req -x509 -newkey rsa:2048 -keyout key.pem -out cert.pem -days 1 -nodes -subj /CN=localhost
exec python3 -c '
import http.server, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()'
"""


def test_a_port_can_speak_https(make):
    made = make(network={"https_ports": [8443, 8444]})
    assert made.get_info().network["https_ports"] == [8443, 8444]
    made.files.write("hello", "encrypted")
    made.commands.run(HTTPS_SERVER, background=True, timeout=0)
    made.commands.run("python3 -m http.server 8444", background=True, timeout=0)

    def fetch(port):
        return wire.send("GET", "/hello", {"Host": made.get_host(port)})

    until("the server", lambda: fetch(8443).status == 200)
    assert fetch(8443).body == b"encrypted"
    assert fetch(8444).status == 502 and b"does not speak HTTPS" in fetch(8444).body
    with pytest.raises(SandboxException, match="at most 100 ports"):
        make(network={"https_ports": [0]})


def test_what_is_done_through_this_dialect_can_be_rewound():
    wanted = {"template": "base", "ttl_seconds": 300, "checkpoints": "every-exec"}
    own = native.call("POST", "/v1/sandboxes", wanted)
    connected = Interpreter.connect(own["id"].replace("-", ""))
    try:
        connected.commands.run("echo command >/tmp/made")
        assert connected.run_code("1 + 1").text == "2"
        connected.files.write("/tmp/made", "file")
        points = native.call("GET", f"/v1/sandboxes/{own['id']}/timeline")["checkpoints"]
        assert [point["cause"] for point in points] == ["exec", "cell", "files"]
        native.call("POST", f"/v1/sandboxes/{own['id']}/rewind", {"to": points[-1]["number"]})
        assert connected.files.read("/tmp/made") == "command\n"
    finally:
        connected.kill()
