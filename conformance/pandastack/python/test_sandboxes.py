"""Create, list, get, delete."""

import re
import threading
import time
from datetime import UTC, datetime

import pandastack
import pytest

from support.waiting import until
from support.wire import call

MISSING = "00000000-0000-4000-8000-000000000000"


def test_create_without_arguments_gives_a_running_code_interpreter(client):
    with client.sandboxes.create() as sandbox:
        assert sandbox.status == "running"
        assert sandbox.template == "code-interpreter"
        assert sandbox.exec("python3 -c 'import pandas'").exit_code == 0


@pytest.mark.parametrize("template", ["base", "code-interpreter", "ubuntu-24.04", "python-data"])
def test_the_templates_that_public_examples_name_can_be_created(make, template):
    assert make(template=template).exec("echo up").stdout == "up\n"


def test_create_keeps_every_field_it_was_given(make):
    metadata = {"owner": "zoë", "cma.session_id": "s-1", "line": "a\nb\r\nX-Evil: 1", "empty": ""}
    sandbox = make(metadata=metadata, ttl_seconds=777, persistent=True)
    assert sandbox.persistent is True
    for seen in (sandbox, sandbox._client.sandboxes.get(sandbox.id)):
        assert {key: seen.metadata.get(key) for key in metadata} == metadata
        assert seen.persistent is True
    assert sandbox.lifecycle()["ttl_seconds"] == 777


def test_metadata_that_is_called_secret_is_not_shown(client, make):
    sandbox = make(metadata={"secret.key": "hunter2", "secrets": "are fine"})
    shown = [client.sandboxes.get(sandbox.id)] + [seen for seen in client.sandboxes.list() if seen.id == sandbox.id]
    assert [seen.metadata for seen in shown] == [{"secrets": "are fine"}] * 2
    assert b"hunter2" not in call("GET", f"/v1/sandboxes/{sandbox.id}").body


def test_a_sandbox_has_an_address_of_its_own_network(sandbox):
    assert sandbox.guest_ip == sandbox.exec("hostname -I").stdout.split()[0]


def test_create_answers_201_with_the_whole_object():
    answer = call("POST", "/v1/sandboxes", body={"template": "base"})
    try:
        assert answer.status == 201
        assert answer.content_type.startswith("application/json")
        assert_whole(answer.json())
    finally:
        call("DELETE", f"/v1/sandboxes/{answer.json()['id']}")


def assert_whole(found):
    assert re.fullmatch(r"[0-9a-z-]{8,57}", found["id"]), "an id must fit in a host name, after a port"
    assert found["template"] == "base"
    assert type(found["cpu"]) is int and found["cpu"] >= 1
    assert type(found["memory_mb"]) is int and found["memory_mb"] >= 64
    assert type(found["boot_ms"]) is int and found["boot_ms"] >= 0
    assert isinstance(found["boot_mode"], str) and found["boot_mode"]
    assert found["status"] == "running"
    assert found["persistent"] is False
    created = datetime.fromisoformat(found["created_at"].replace("Z", "+00:00"))
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    assert found["boundary"]["accelerator"] in ("kvm", "tcg")
    assert not {"host_tap", "mac", "vsock_cid"} & found.keys(), "details of the host"


def test_get_and_list_say_the_same_as_create(sandbox):
    got = call("GET", f"/v1/sandboxes/{sandbox.id}").json()
    assert_whole_later(got)
    listed = call("GET", "/v1/sandboxes").json()
    items = listed["items"] if isinstance(listed, dict) else listed
    [in_list] = [item for item in items if item["id"] == sandbox.id]
    assert_whole_later(in_list)
    for key in ("id", "template", "cpu", "memory_mb", "persistent", "created_at", "boundary"):
        assert in_list[key] == got[key]


def assert_whole_later(found):
    for key in ("cpu", "memory_mb"):
        assert type(found[key]) is int
    assert found["persistent"] is False
    assert found["boundary"]["accelerator"] in ("kvm", "tcg")


def test_the_deprecated_size_arguments_warn_and_do_no_harm(client):
    with pytest.warns(DeprecationWarning, match="deprecated"):
        sandbox = client.sandboxes.create(template="base", cpu=1, memory_mb=256)
    with sandbox:
        assert sandbox.status == "running"


def test_refresh_follows_the_server(make):
    sandbox = make()
    sandbox.pause()
    assert sandbox.status == "running"
    assert sandbox.refresh() is sandbox
    assert sandbox.status == "paused"


def test_a_deleted_sandbox_is_gone_everywhere(client, make):
    sandbox = make()
    sandbox.kill()
    assert sandbox.id not in [listed.id for listed in client.sandboxes.list()]
    for attempt in (sandbox.refresh, sandbox.kill, sandbox.lifecycle, lambda: sandbox.exec("true")):
        with pytest.raises(pandastack.NotFoundError):
            attempt()


def test_delete_answers_204_without_a_body(make):
    sandbox = make()
    answer = call("DELETE", f"/v1/sandboxes/{sandbox.id}")
    assert (answer.status, answer.body) == (204, b"")


def test_leaving_the_with_block_deletes_the_sandbox(client):
    with client.sandboxes.create(template="base") as sandbox:
        assert client.sandboxes.get(sandbox.id).status == "running"
    with pytest.raises(pandastack.NotFoundError):
        client.sandboxes.get(sandbox.id)


def test_leaving_the_with_block_keeps_a_persistent_sandbox(client, make):
    with make(persistent=True) as sandbox:
        pass
    assert client.sandboxes.get(sandbox.id).status == "running"


def test_a_sandbox_found_again_is_still_persistent_when_left(client, make):
    made = make(persistent=True)
    with client.sandboxes.get(made.id):
        pass
    assert client.sandboxes.get(made.id).status == "running"


def test_an_unknown_id_is_not_found_after_the_clients_one_retry(client):
    started = time.monotonic()
    with pytest.raises(pandastack.NotFoundError):
        client.sandboxes.get(MISSING)
    assert 0.2 <= time.monotonic() - started < 5


def test_deleting_an_unknown_id_is_not_found(client):
    with pytest.raises(pandastack.NotFoundError):
        client.sandboxes.delete(MISSING)


@pytest.mark.parametrize("template", ["no-such-template", "../base", "", "a" * 300, "base\x00"])
def test_an_unknown_template_is_refused_and_nothing_is_made(client, template):
    before = {sandbox.id for sandbox in client.sandboxes.list()}
    with pytest.raises(pandastack.BadRequestError):
        client.sandboxes.create(template=template)
    assert {sandbox.id for sandbox in client.sandboxes.list()} <= before


def test_a_negative_ttl_is_refused(client):
    with pytest.raises(pandastack.BadRequestError):
        client.sandboxes.create(template="base", ttl_seconds=-1)


@pytest.mark.parametrize("option", [
    {"from_snapshot": "no-such-snapshot"},
    {"volumes": [{"name": "no-such-volume", "read_only": True}]},
], ids=lambda option: next(iter(option)))
def test_what_is_asked_for_and_not_there_is_refused_not_left_out(client, option):
    with pytest.raises(pandastack.PandastackError):
        client.sandboxes.create(template="base", **option).kill()


def test_a_cancelled_create_sends_nothing(client):
    cancel = threading.Event()
    cancel.set()
    before = {sandbox.id for sandbox in client.sandboxes.list()}
    with pytest.raises(pandastack.CreateCancelled):
        client.sandboxes.create(template="base", cancel=cancel)
    assert {sandbox.id for sandbox in client.sandboxes.list()} <= before


def test_a_sandbox_ends_when_its_ttl_is_over_and_a_persistent_one_does_not(client, make):
    mortal = make(ttl_seconds=3)
    kept = make(ttl_seconds=3, persistent=True)
    # `list`, because `get` may count as use.
    until("the sandbox ends", lambda: mortal.id not in [s.id for s in client.sandboxes.list()], 60)
    assert kept.id in [sandbox.id for sandbox in client.sandboxes.list()]
