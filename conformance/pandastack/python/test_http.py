"""Properties of every answer: keys, errors, request IDs, no redirects, limits."""

import re

import pandastack
import pytest

from support.server import TOKEN
from support.wire import call, listen, raw_request

EVERYTHING = [
    ("GET", "/v1/sandboxes"), ("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes/x"), ("DELETE", "/v1/sandboxes/x"),
    ("POST", "/v1/sandboxes/x/exec"), ("POST", "/v1/sandboxes/x/exec/stream"), ("GET", "/v1/sandboxes/x/fs"),
    ("PUT", "/v1/sandboxes/x/fs"), ("GET", "/v1/sandboxes/x/logs"), ("GET", "/v1/sandboxes/x/lifecycle"),
    ("PATCH", "/v1/sandboxes/x/lifecycle"), ("POST", "/v1/sandboxes/x/pause"), ("GET", "/v1/sandboxes/x/ports"),
    ("POST", "/v1/sandboxes/x/repl/sessions"), ("GET", "/v1/templates"), ("GET", "/v1/templates/builds"),
    ("GET", "/v1/me"), ("GET", "/v1/me/tokens"), ("POST", "/v1/me/tokens"), ("DELETE", "/v1/me/tokens/x"),
    ("GET", "/v1/sandboxes/x/events"), ("GET", "/v1/sandboxes/x/metrics"),
]


@pytest.mark.parametrize("method, path", EVERYTHING, ids=lambda part: part)
def test_without_a_key_every_route_is_401(method, path):
    answer = call(method, path, token=None)
    assert answer.status == 401
    assert answer.content_type.startswith("application/json") and answer.error


@pytest.mark.parametrize("header", [
    "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
    "Bearer " + "x" * 5000, "Bearer sdl_" + "0" * 40, "Bearer \xff",
], ids=lambda header: f"{header[:12]}…{len(header)}")
def test_a_key_that_is_not_one_is_401(header):
    answer = call("GET", "/v1/me", token=None, headers={"Authorization": header})
    assert answer.status == 401 and answer.error
    assert TOKEN not in answer.error


def test_a_wrong_key_is_an_auth_error_for_the_client():
    with pytest.raises(pandastack.AuthError):
        pandastack.Client(api_key="wrong").sandboxes.list()


def test_an_unknown_route_is_a_404_and_a_wrong_method_a_405():
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/nothing", 404), ("PUT", "/v1/me", 405)):
        answer = call(method, path)
        assert answer.status == status and answer.error


@pytest.mark.parametrize("path", [
    "/v1/sandboxes/", "/v1/templates/", "/v1/me/", "//v1/sandboxes", "/v1//sandboxes", "/v1", "/v1/", "/v1/./me",
    "/v1/sandboxes/../me",
])
def test_nothing_redirects(path):
    assert call("GET", path).status in (200, 400, 404)


@pytest.mark.parametrize("identifier", [
    "x", "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "%0d%0aX-Evil:%201", "a" * 4000, "%ff%fe", "%F0%9F%98%80",
    "'%20OR%201=1--", "*",
], ids=lambda text: text[:20])
@pytest.mark.parametrize("suffix", ["", "/exec", "/lifecycle"])
def test_an_id_that_cannot_be_one_is_no_fault_of_the_server(identifier, suffix):
    method, body = ("POST", {"cmd": "true"}) if suffix == "/exec" else ("GET", None)
    answer = call(method, f"/v1/sandboxes/{identifier}{suffix}", body=body)
    assert answer.status in (400, 404, 405)
    assert "X-Evil" not in answer.headers


def test_every_answer_has_a_request_id():
    ids = [
        call("GET", "/v1/me").headers["X-Request-Id"],
        call("GET", "/v1/me", token=None).headers["X-Request-Id"],
        call("GET", "/v1/nothing").headers["X-Request-Id"],
        call("GET", "/v1/sandboxes/x").headers["X-Request-Id"],
        call("POST", "/v1/sandboxes", body=b"{").headers["X-Request-Id"],
    ]
    assert all(ids) and len(set(ids)) == len(ids)


def test_a_request_id_of_the_client_is_given_back():
    assert call("GET", "/v1/me", headers={"X-Request-Id": "trace-0123"}).headers["X-Request-Id"] == "trace-0123"


@pytest.mark.parametrize("wanted", ["x" * 5000, "two words", "a\tb", "<script>"], ids=lambda text: text[:10])
def test_a_request_id_that_could_do_harm_is_replaced(wanted):
    given = call("GET", "/v1/me", headers={"X-Request-Id": wanted}).headers["X-Request-Id"]
    assert re.fullmatch(r"[A-Za-z0-9._-]{8,128}", given)


@pytest.mark.parametrize("body", [
    b"{", b"null", b"[]", b'"base"', b"\xff", {"template": 5}, {"template": "base", "ttl_seconds": "long"},
    {"template": "base", "persistent": "yes"}, {"template": "base", "metadata": ["x"]},
    {"template": "base", "metadata": {"n": 1}}, {"template": "base", "volumes": "all"},
    {"template": "base", "ttl_seconds": 1e30}, {"template": "base", "ttl_seconds": 2**63},
    b'{"template": "base", "metadata": ' + b"[" * 5000 + b"]" * 5000 + b"}",
], ids=lambda body: repr(body)[:45])
def test_a_create_that_makes_no_sense_is_a_400_and_makes_nothing(client, body):
    before = {sandbox.id for sandbox in client.sandboxes.list()}
    answer = call("POST", "/v1/sandboxes", body=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400 and answer.error
    assert {sandbox.id for sandbox in client.sandboxes.list()} <= before


def test_errors_are_one_flat_sentence_without_paths_of_the_host():
    for answer in (
        call("GET", "/v1/sandboxes/x"),
        call("POST", "/v1/sandboxes", body={"template": "no-such-template"}),
        call("GET", "/v1/templates/no-such-template"),
    ):
        assert 400 <= answer.status < 500
        assert not re.search(r"/(home|root|tmp|var|usr|work|run)/", answer.error)


def test_a_body_that_is_announced_too_large_is_a_413_before_it_is_sent(sandbox):
    headers = [("Content-Type", "application/json"), ("Content-Length", str(1 << 33))]
    request = raw_request("POST", f"/v1/sandboxes/{sandbox.id}/exec", headers=headers)
    found = listen(request, 10, lambda heard: b"\r\n\r\n" in heard.bytes).bytes
    assert found.startswith(b"HTTP/1.1 413 ")


def test_a_command_that_is_too_large_is_a_bad_request_for_the_client(sandbox):
    with pytest.raises(pandastack.BadRequestError):
        sandbox.exec("true #" + "x" * (40 << 20))


def test_headers_without_end_are_refused():
    request = raw_request("GET", "/v1/me", headers=[(f"X-{n}", "y" * 1000) for n in range(2000)])
    try:
        found = listen(request, 10, lambda heard: b"\r\n" in heard.bytes).bytes
    except OSError:
        found = b""
    assert found == b"" or found.split()[1] in (b"400", b"431")


@pytest.mark.parametrize("service", ["functions", "schedules", "databases", "apps"])
def test_a_service_that_is_not_here_is_not_found(client, service):
    with pytest.raises(pandastack.NotFoundError):
        getattr(client, service).list()


def test_health_and_version_need_no_key():
    assert call("GET", "/healthz", token=None).status == 200
    assert call("GET", "/version", token=None).status == 200
