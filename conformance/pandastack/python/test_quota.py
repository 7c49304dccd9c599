"""Refusals by quota and rate limit: they come before anything is created, in a form that the client understands."""

import threading

import pandastack
import pytest

from support import workspaces
from support.waiting import until
from support.wire import call


def create(token):
    return call("POST", "/v1/sandboxes", token=token, body={"template": "base"})


@pytest.fixture(scope="module")
def crowded():
    """A token of a workspace that has used its quota of one sandbox."""
    token = workspaces.make(sandboxes=1)
    made = create(token)
    assert made.status == 201
    yield token
    for sandbox in workspaces.sandboxes_of(token):
        call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)


@pytest.fixture(scope="module")
def hasty():
    """A token of a workspace that has used its rate limit of one sandbox per minute."""
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


@pytest.mark.parametrize("what", ["cpu", "memory_mb", "disk_mb"])
def test_a_quota_has_room_for_what_fits_and_for_no_more(what):
    size = call("GET", "/v1/templates/base").json()[what]
    token = workspaces.make(**{what: size})
    try:
        larger = call("POST", "/v1/sandboxes", token=token, body={"template": "base", what: size + 1})
        assert (larger.status, workspaces.sandboxes_of(token)) == (429, []), larger.body
        made = create(token)
        assert made.status == 201, made.body
        assert call("GET", "/v1/quota", token=token).json()["used"][what] == size
        answer = create(token)
        assert (answer.status, answer.json()["code"]) == (429, "quota_exceeded")
        assert "Retry-After" not in answer.headers, "waiting does not help"
        assert workspaces.sandboxes_of(token) == [made.json()["id"]]
    finally:
        for sandbox in workspaces.sandboxes_of(token):
            call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)


def test_what_is_saved_counts_and_more_is_refused_before_it_is_made():
    template = call("GET", "/v1/templates/base").json()
    # The sandbox itself, and a save in progress.
    token = workspaces.make(disk_mb=2 * template["disk_mb"] + template["memory_mb"])

    def used():
        return call("GET", "/v1/quota", token=token).json()["used"]["disk_mb"]

    def post(path):
        return call("POST", path, token=token, body=b"")

    sandbox = create(token).json()["id"]
    try:
        before = used()
        saved = post(f"/v1/sandboxes/{sandbox}/snapshots")
        assert saved.status == 201, saved.body
        assert used() > before == template["disk_mb"]
        for path in (f"/v1/sandboxes/{sandbox}/snapshots", f"/v1/sandboxes/{sandbox}/checkpoints"):
            refused = post(path)
            assert (refused.status, refused.json()["code"]) == (429, "quota_exceeded"), path
        listed = call("GET", "/v1/snapshots", token=token).json()["snapshots"]
        assert [snapshot["id"] for snapshot in listed] == [saved.json()["id"]]
        assert call("GET", f"/v1/sandboxes/{sandbox}/timeline", token=token).json()["checkpoints"] == []
    finally:
        call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)
        for snapshot in call("GET", "/v1/snapshots", token=token).json()["snapshots"]:
            call("DELETE", f"/v1/snapshots/{snapshot['id']}", token=token)
    until("nothing is stored", lambda: used() == 0)


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
