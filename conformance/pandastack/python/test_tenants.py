"""Objects of one workspace do not exist for another."""

import uuid

import pandastack
import pytest

from support.server import TOKEN_OTHER
from support.wire import call

MISSING = "00000000-0000-4000-8000-000000000000"

ON_A_SANDBOX = [
    ("GET", "", None), ("DELETE", "", None),
    ("POST", "/exec", {"cmd": "true"}), ("POST", "/exec/stream", {"cmd": "true"}),
    ("POST", "/repl/sessions", {"language": "python"}), ("GET", "/repl/sessions", None),
    ("POST", "/repl/sessions/x/run", {"code": "1"}), ("DELETE", "/repl/sessions/x", None),
    ("GET", "/logs", None), ("GET", "/logs?follow=1", None),
    ("GET", "/fs?path=/etc/passwd", None), ("PUT", "/fs?path=/tmp/x", b"x"), ("DELETE", "/fs?path=/tmp/x", None),
    ("GET", "/fs/dir?path=/", None), ("GET", "/fs/stat?path=/", None),
    ("GET", "/lifecycle", None), ("PATCH", "/lifecycle", {"persistent": True}),
    ("POST", "/pause", b""), ("POST", "/resume", b""),
    ("GET", "/ports", None), ("GET", "/proxy/80/", None), ("POST", "/preview-token", {"port": 80}),
    ("GET", "/events", None), ("GET", "/metrics", None),
    ("POST", "/fork", b""), ("POST", "/fork-tree", {"count": 2}), ("POST", "/promote", {"cleanup_siblings": True}),
    ("GET", "/family", None), ("POST", "/snapshots", b""), ("POST", "/hibernate", b""), ("POST", "/wake", b""),
    ("POST", "/repl", {"code": "1"}), ("POST", "/repl/sessions/x/interrupt", b""), ("POST", "/repl/sessions/x/restart", b""),
    ("GET", "/execs", None), ("GET", "/execs/x", None), ("GET", "/execs/x/output", None), ("GET", "/execs/x/result", None),
    ("POST", "/execs/x/signal", {"signal": 9}), ("DELETE", "/execs/x", None),
    ("GET", "/fs/watch?path=/tmp", None), ("POST", "/fs/move", {"from": "/etc/passwd", "to": "/tmp/x"}),
    ("POST", "/fs/mkdir", {"path": "/tmp/x"}), ("POST", "/fs/chmod", {"path": "/tmp", "mode": "0777"}),
    ("GET", "/network", None), ("PUT", "/network", {"mode": "open"}), ("DELETE", "/network", None), ("GET", "/network/events", None),
    ("GET", "/network/events?follow=1", None), ("GET", "/events?follow=1", None),
    ("GET", "/timeline", None), ("POST", "/checkpoints", {}), ("PATCH", "/checkpoints/1", {"name": "x"}),
    ("POST", "/rewind", {"to": "1"}), ("GET", "/diff?from=1", None),
    ("POST", "/contexts/x/fork", {"count": 1}), ("POST", "/repl/sessions/x/fork", {"count": 1}),
]

SOCKETS = ["/exec/ws", "/exec/pty", "/exec/session", "/ssh"]
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


@pytest.mark.parametrize("method, path, body", ON_A_SANDBOX, ids=lambda part: str(part))
def test_a_foreign_sandbox_is_not_found_on_any_route(sandbox, method, path, body):
    foreign = call(method, f"/v1/sandboxes/{sandbox.id}{path}", token=TOKEN_OTHER, body=body)
    assert foreign.status == 404
    missing = call(method, f"/v1/sandboxes/{MISSING}{path}", token=TOKEN_OTHER, body=body)
    assert missing.status == 404
    told, expected = foreign.error.replace(sandbox.id, "…"), missing.error.replace(MISSING, "…")
    assert told == expected, "it tells that there is one"


@pytest.mark.parametrize("path", SOCKETS)
def test_no_socket_of_a_foreign_sandbox_opens(sandbox, path):
    for known in (sandbox.id, MISSING):
        answer = call("GET", f"/v1/sandboxes/{known}{path}", token=TOKEN_OTHER, headers=UPGRADE)
        assert answer.status == 404, (known, answer.body)


def test_a_foreign_preview_token_cannot_be_revoked(sandbox):
    made = call("POST", f"/v1/sandboxes/{sandbox.id}/preview-token", body={"port": 9}).json()
    for known in (made["token"], made["id"], "0123456789abcdef"):
        assert call("DELETE", f"/v1/preview-tokens/{known}", token=TOKEN_OTHER).status == 404
    answer = call("GET", f"/v1/p/{made['token']}/", token=None)
    assert answer.status == 502, "nothing listens there, but the token still works"
    revoked = [call("DELETE", f"/v1/preview-tokens/{made['id']}").status for _ in range(2)]
    assert revoked == [204, 404]


def test_a_foreign_snapshot_template_and_build_are_not_found(client, make):
    sandbox, name = make(), f"conformance-{uuid.uuid4().hex[:8]}"
    snapshot = sandbox.snapshot()
    made = call("POST", f"/v1/snapshots/{snapshot}/template", body={"name": name})
    assert made.status in (200, 201), made.body
    build = client.templates.build_from_dockerfile(name + "-b", "FROM base\nRUN true\n")
    foreign = [
        ("GET", f"/v1/snapshots/{snapshot}", None), ("DELETE", f"/v1/snapshots/{snapshot}", None),
        ("GET", f"/v1/snapshots/{snapshot}/export", None),
        ("POST", f"/v1/snapshots/{snapshot}/template", {"name": "mine"}),
        ("GET", f"/v1/templates/{name}", None), ("DELETE", f"/v1/templates/{name}", None),
        ("GET", f"/v1/templates/builds/{build.id}", None), ("GET", f"/v1/templates/builds/{build.id}/logs", None),
    ]
    for method, path, body in foreign:
        answer = call(method, path, token=TOKEN_OTHER, body=body)
        assert answer.status == 404, (method, path, answer.body)
    refused = call("POST", "/v1/sandboxes", token=TOKEN_OTHER, body={"template": name})
    assert refused.status in (400, 404), refused.body
    assert call("GET", f"/v1/templates/{name}").status == 200
    built = client.templates.wait_for_build(build.id)
    for template in (name, name + "-b") if built.status == "done" else (name,):
        client.templates.delete(template)
    client.snapshots.delete(snapshot)


def test_after_all_that_the_sandbox_is_as_it_was(sandbox):
    assert sandbox.refresh().status == "running"
    assert sandbox.persistent is False
    assert not sandbox.filesystem.exists("/tmp/x")


def test_a_list_has_only_what_is_mine(client, other_client, sandbox, make):
    theirs = make(by=other_client)
    mine = {listed.id for listed in client.sandboxes.list()}
    foreign = {listed.id for listed in other_client.sandboxes.list()}
    assert sandbox.id in mine and theirs.id in foreign
    assert not mine & foreign


def test_a_foreign_token_cannot_be_revoked(client, other_client):
    token = client.tokens.create("conformance-foreign")
    try:
        assert token.prefix not in [known.prefix for known in other_client.tokens.list()]
        with pytest.raises(pandastack.NotFoundError):
            other_client.tokens.revoke(token.prefix)
        assert pandastack.Client(api_key=token.token).me()
    finally:
        client.tokens.revoke(token.prefix)


def test_metadata_cannot_move_a_sandbox_to_another_workspace(client, other_client, make):
    made = make(by=other_client, metadata={"workspace": "default"})
    assert made.id not in [listed.id for listed in client.sandboxes.list()]
    assert made.id in [listed.id for listed in other_client.sandboxes.list()]


def test_builds_of_others_are_not_listed(client, other_client):
    mine = {build.id for build in client.templates.builds()}
    theirs = {build.id for build in other_client.templates.builds()}
    assert not mine & theirs
