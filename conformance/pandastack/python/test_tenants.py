"""What belongs to one workspace does not exist for another."""

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
]


@pytest.mark.parametrize("method, path, body", ON_A_SANDBOX, ids=lambda part: str(part))
def test_a_foreign_sandbox_is_not_found_on_any_route(sandbox, method, path, body):
    foreign = call(method, f"/v1/sandboxes/{sandbox.id}{path}", token=TOKEN_OTHER, body=body)
    assert foreign.status == 404
    missing = call(method, f"/v1/sandboxes/{MISSING}{path}", token=TOKEN_OTHER, body=body)
    assert missing.status == 404
    told, expected = foreign.error.replace(sandbox.id, "…"), missing.error.replace(MISSING, "…")
    assert told == expected, "it tells that there is one"


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
