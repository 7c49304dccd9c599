"""A request that is sent again with its idempotency key is answered again and runs once."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import events, workspaces
from support.waiting import until
from support.wire import call


def send(key, path, body, **more):
    return call("POST", path, body=body, headers={"Idempotency-Key": key}, **more)


def twice(path, body, **more):
    key = uuid.uuid4().hex
    first, again = send(key, path, body, **more), send(key, path, body, **more)
    assert first.headers["Idempotency-Replayed"] is None and again.headers["Idempotency-Replayed"] == "true"
    assert first.status == again.status
    return first, again


def without_start(answer):
    """The events of a stream without the first, which says whether the command existed before."""
    (name, start), *rest = events.parse(answer.body)
    assert name == "start"
    return start["id"], rest


def test_the_same_create_makes_one_sandbox():
    token = workspaces.make()
    try:
        first, again = twice("/v1/sandboxes", {"template": "base"}, token=token)
        assert first.status == 201 and again.body == first.body
        assert workspaces.sandboxes_of(token) == [first.json()["id"]]
    finally:
        for sandbox in workspaces.sandboxes_of(token):
            call("DELETE", f"/v1/sandboxes/{sandbox}", token=token)


def test_the_same_command_runs_once(sandbox, scratch):
    body = {"cmd": f"echo ran | tee -a {scratch}/ran"}
    first, again = twice(f"/v1/sandboxes/{sandbox.id}/exec", body)
    assert first.status == 200 and again.body == first.body and first.json()["stdout"] == "ran\n"
    assert sandbox.filesystem.read(f"{scratch}/ran") == b"ran\n"


def test_the_same_stream_runs_once_and_is_told_again(sandbox, scratch):
    body = {"cmd": f"echo ran | tee -a {scratch}/ran; echo err >&2; exit 3"}
    first, again = twice(f"/v1/sandboxes/{sandbox.id}/exec/stream", body)
    assert first.status == 200 and without_start(again) == without_start(first)
    assert without_start(first)[1][-1][1]["exit_code"] == 3
    assert sandbox.filesystem.read(f"{scratch}/ran") == b"ran\n"


def test_a_stream_is_joined_while_its_command_runs(sandbox, scratch):
    key, path = uuid.uuid4().hex, f"/v1/sandboxes/{sandbox.id}/exec/stream"
    body = {"cmd": f"echo begun >> {scratch}/begun; echo before; until test -e {scratch}/go; do sleep 0.1; done; echo after"}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(send, key, path, body)
        until("the command runs", lambda: sandbox.filesystem.exists(f"{scratch}/begun"))
        again = pool.submit(send, key, path, body)
        sandbox.filesystem.write(f"{scratch}/go", "")
        heard = [without_start(answer.result(timeout=60)) for answer in (first, again)]
    for exec_id, rest in heard:
        assert exec_id == heard[0][0]
        assert "".join(data["chunk"] for name, data in rest if name == "stdout") == "before\nafter\n"
    assert sandbox.filesystem.read(f"{scratch}/begun") == b"begun\n"


def test_a_stream_of_which_nothing_is_left_is_not_run_again(sandbox, scratch):
    key, path = uuid.uuid4().hex, f"/v1/sandboxes/{sandbox.id}/exec/stream"
    body = {"cmd": f"echo ran >> {scratch}/ran", "id": uuid.uuid4().hex}
    assert send(key, path, body).status == 200
    assert call("DELETE", f"/v1/sandboxes/{sandbox.id}/execs/{body['id']}").status == 204
    answer = send(key, path, body)
    assert (answer.status, answer.json()["code"]) == (409, "key_answer_not_kept")
    assert sandbox.filesystem.read(f"{scratch}/ran") == b"ran\n"


@pytest.mark.parametrize("route", ["exec", "exec/stream"])
def test_another_command_with_the_same_key_is_refused(sandbox, route):
    key, path = uuid.uuid4().hex, f"/v1/sandboxes/{sandbox.id}/{route}"
    assert send(key, path, {"cmd": "true"}).status == 200
    answer = send(key, path, {"cmd": "false"})
    assert (answer.status, answer.json()["code"]) == (422, "key_mismatch")
