"""Refusals for want of room: said before anything is made, in the form the client can act on."""

import threading

import pandastack
import pytest

from support import workspaces
from support.wire import call


def create(token):
    return call("POST", "/v1/sandboxes", token=token, body={"template": "base"})


@pytest.fixture(scope="module")
def crowded():
    """A token of a workspace that may have one sandbox, and has it."""
    token = workspaces.make(sandboxes=1)
    made = create(token)
    assert made.status == 201
    yield token
    for sandbox in workspaces.sandboxes_of(token):
        call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)


@pytest.fixture(scope="module")
def hasty():
    """A token of a workspace that may make one sandbox a minute, and just did."""
    token = workspaces.make(creates_per_minute=1)
    made = create(token)
    assert made.status == 201
    call("DELETE", f"/v1/sandboxes/{made.json()['id']}", token=token)
    yield token
    for sandbox in workspaces.sandboxes_of(token):
        call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)


def test_too_many_sandboxes_is_a_429_without_retry_after(crowded):
    before = workspaces.sandboxes_of(crowded)
    answer = create(crowded)
    assert answer.status == 429 and answer.error
    assert "Retry-After" not in answer.headers, "waiting does not help"
    assert workspaces.sandboxes_of(crowded) == before


def test_too_many_sandboxes_is_raised_at_once(crowded):
    retries = []
    client = pandastack.Client(api_key=crowded, on_create_retry=retries.append)
    with pytest.raises(pandastack.BadRequestError):
        client.sandboxes.create(template="base")
    assert retries == []


def test_there_is_room_again_after_a_delete():
    token = workspaces.make(sandboxes=1)
    client = pandastack.Client(api_key=token)
    client.sandboxes.create(template="base").kill()
    with client.sandboxes.create(template="base") as sandbox:
        assert sandbox.status == "running"


def test_too_many_creates_a_minute_is_a_429_with_retry_after(hasty):
    answer = create(hasty)
    assert answer.status == 429 and answer.error
    assert 0 < float(answer.headers["Retry-After"]) <= 60
    assert workspaces.sandboxes_of(hasty) == []


def test_the_client_waits_as_long_as_it_is_told(hasty):
    cancel, retries = threading.Event(), []

    def note(event):
        retries.append(event)
        cancel.set()

    client = pandastack.Client(api_key=hasty, max_create_retry_seconds=120, on_create_retry=note)
    with pytest.raises(pandastack.CreateCancelled) as cancelled:
        client.sandboxes.create(template="base", cancel=cancel)
    assert isinstance(cancelled.value.__cause__, pandastack.BadRequestError)
    [event] = retries
    assert event.status_code == 429 and event.retry_after_seconds > 0 and event.error
    assert workspaces.sandboxes_of(hasty) == []


def test_a_full_workspace_does_not_touch_others(crowded, client):
    with client.sandboxes.create(template="base") as sandbox:
        assert sandbox.status == "running"
