"""The current key, and all keys."""

import uuid

import pandastack
import pytest

from support.server import TOKEN, TOKEN_OTHER
from support.wire import call


@pytest.fixture
def token(client):
    made = client.tokens.create(f"conformance-{uuid.uuid4().hex[:8]}")
    yield made
    try:
        client.tokens.revoke(made.prefix)
    except pandastack.NotFoundError:
        pass


def test_me_says_in_which_workspace_the_key_works(client, other_client):
    me = call("GET", "/v1/me").json()
    assert (me["current_org"], me["orgs"], me["auth_method"]) == ("default", ["default"], "token")
    assert client.me() != other_client.me()


def test_no_answer_about_me_or_my_keys_shows_a_key(client, token):
    for path in ("/v1/me", "/v1/me/tokens"):
        answer = call("GET", path)
        assert answer.status == 200
        for secret in (TOKEN, TOKEN_OTHER, token.token):
            assert secret.encode() not in answer.body


def test_a_new_token_works_and_is_listed_by_name(client, token):
    assert token.token.startswith("pds_") and token.prefix and token.token.startswith(token.prefix)
    assert pandastack.Client(api_key=token.token).sandboxes.list() is not None
    [listed] = [known for known in client.tokens.list() if known.prefix == token.prefix]
    assert listed.name == token.name and listed.name.startswith("conformance-")
    assert listed.token is None and listed.created_at


def test_a_token_sees_what_its_maker_sees(client, token, sandbox):
    by_token = pandastack.Client(api_key=token.token)
    assert by_token.sandboxes.get(sandbox.id).exec("echo same").stdout == "same\n"


def test_a_revoked_token_is_refused_at_once(client, token):
    by_token = pandastack.Client(api_key=token.token)
    assert by_token.me()
    client.tokens.revoke(token.prefix)
    with pytest.raises(pandastack.AuthError):
        by_token.me()
    assert token.prefix not in [known.prefix for known in client.tokens.list()]


def test_a_token_may_expire(client):
    made = client.tokens.create("conformance-expiring", expires_in_days=1)
    try:
        assert pandastack.Client(api_key=made.token).me()
    finally:
        client.tokens.revoke(made.prefix)


@pytest.mark.parametrize("days", [0, -1])
def test_a_token_that_would_be_expired_is_refused(client, days):
    with pytest.raises(pandastack.BadRequestError):
        client.tokens.create("conformance-expired", expires_in_days=days)


def test_an_unknown_prefix_is_not_found(client):
    with pytest.raises(pandastack.NotFoundError):
        client.tokens.revoke("sdl_00000000")


@pytest.mark.parametrize("body", [{"label": 5}, {"label": "x", "expires_in_days": "soon"}, b"{"], ids=repr)
def test_a_bad_token_request_is_a_400(body):
    answer = call("POST", "/v1/me/tokens", body=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400 and answer.error


def test_the_wire_is_as_both_clients_read_it():
    made = call("POST", "/v1/me/tokens", body={"label": "conformance-wire"})
    assert made.status in (200, 201)
    assert made.json()["label"] == "conformance-wire" and made.json()["created_at"]
    revoked = call("DELETE", f"/v1/me/tokens/{made.json()['prefix']}")
    assert (revoked.status, revoked.body) == (204, b"")
