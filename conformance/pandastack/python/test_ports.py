"""Servers inside a sandbox, seen from outside."""

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


def test_a_port_where_nobody_listens_is_a_clear_error(serving):
    answer = call("GET", f"/v1/sandboxes/{serving.id}/proxy/9/")
    assert answer.status == 502
    assert TOKEN not in answer.error and API not in answer.error and HOST not in answer.error


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_that_cannot_be_one_is_refused(serving, port):
    assert call("GET", f"/v1/sandboxes/{serving.id}/proxy/{port}/").status in (400, 404)
