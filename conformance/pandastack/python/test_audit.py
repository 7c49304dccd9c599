"""The audit log, and recordings of commands where they are enabled."""

import uuid

import pandastack
import pytest

from support import workspaces
from support.wire import call


@pytest.fixture(scope="module")
def recorded():
    """A token and a sandbox of a workspace that records its commands."""
    name = f"recorded-{uuid.uuid4().hex[:8]}"
    token = workspaces.make(name)
    assert call("PATCH", f"/v1/workspaces/{name}", body={"record_runs": True}).json()["record_runs"] is True
    sandbox = pandastack.Client(api_key=token).sandboxes.create(template="code-interpreter")
    yield token, sandbox
    sandbox.kill()


def entries(token, action):
    answer = call("GET", "/v1/audit", token=token, query={"limit": 1000})
    assert answer.status == 200
    return [entry for entry in answer.json()["items"] if entry["action"] == action]


def recordings(token):
    numbers = [entry["number"] for entry in entries(token, "run.recorded")]
    answers = [call("GET", f"/v1/audit/{number}/recording", token=token) for number in numbers]
    assert all(answer.status == 200 for answer in answers)
    return {answer.json()["code"]: answer.json()["output"] for answer in answers}


def test_the_code_and_the_output_of_a_run_can_be_read_again(recorded):
    token, sandbox = recorded
    sandbox.exec("echo out; echo err >&2")
    assert sorted(recordings(token)["echo out; echo err >&2"].split()) == ["err", "out"]


def test_a_recording_of_a_cell_has_its_value_and_its_traceback(recorded):
    token, sandbox = recorded
    context = sandbox.create_code_context()
    context.run_code("print('printed'); 6 * 7")
    context.run_code("1 / 0")
    found = recordings(token)
    assert found["print('printed'); 6 * 7"] == "printed\n42\n"
    assert "ZeroDivisionError" in found["1 / 0"] and "Traceback" in found["1 / 0"]


def test_another_workspace_reads_no_recording(recorded):
    token, sandbox = recorded
    sandbox.exec("true")
    number = entries(token, "run.recorded")[0]["number"]
    assert call("GET", f"/v1/audit/{number}/recording", token=workspaces.make()).status == 404


def test_a_terminal_is_in_the_audit_log_and_so_is_an_attempt(recorded):
    token, sandbox = recorded
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert call("GET", f"/v1/sandboxes/{sandbox.id}/ssh", token=token).status == 426
    assert call("GET", f"/v1/sandboxes/{sandbox.id}/ssh", token=token, headers=upgrade).status == 101
    found = entries(token, "terminal.open")
    assert [entry["result"] for entry in found] == ["refused", "ok"]
    assert all(entry["object"] == sandbox.id for entry in found)
