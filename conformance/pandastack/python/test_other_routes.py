"""Routes of the contract that neither client wraps."""

import pytest

from support.wire import call


def test_a_sandbox_has_events(make):
    sandbox = make()
    sandbox.pause()
    sandbox.resume()
    answer = call("GET", f"/v1/sandboxes/{sandbox.id}/events", query={"tail": 50})
    assert answer.status == 200
    found = answer.json()["events"]
    assert all(event["sandbox_id"] == sandbox.id and event["time"] and event["type"] for event in found)
    types = [event["type"] for event in found]
    assert "sandbox.paused" in types and "sandbox.resumed" in types


def test_tail_limits_the_events(make):
    sandbox = make()
    sandbox.pause()
    sandbox.resume()
    answer = call("GET", f"/v1/sandboxes/{sandbox.id}/events", query={"tail": 1})
    assert [event["type"] for event in answer.json()["events"]] == ["sandbox.resumed"]


def test_metrics_are_real_numbers(sandbox):
    answer = call("GET", f"/v1/sandboxes/{sandbox.id}/metrics")
    assert answer.status == 200
    numbers = [value for value in answer.json().values() if isinstance(value, (int, float))]
    assert sum(value > 0 for value in numbers) >= 2


@pytest.mark.parametrize("language", [{"language": "python"}, {}], ids=["python", "by default"])
def test_one_shot_code_runs_without_a_session(interpreter, language):
    answer = call("POST", f"/v1/sandboxes/{interpreter.id}/repl", body={"code": "print(6 * 7)", **language})
    assert answer.status == 200
    found = answer.json()
    assert (found["language"], found["stdout"], found["stderr"], found["exit_code"]) == ("python", "42\n", "", 0)


def test_files_can_be_removed(sandbox, scratch):
    sandbox.filesystem.write(f"{scratch}/d/f", b"x")
    removed = call("DELETE", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": f"{scratch}/d"})
    assert (removed.status, removed.body) == (204, b"")
    assert not sandbox.filesystem.exists(f"{scratch}/d")
    assert call("DELETE", f"/v1/sandboxes/{sandbox.id}/fs", query={"path": f"{scratch}/d"}).status == 404
