"""Behavior for every client: tokens, browsers, and requests that today's clients do not send."""

import gzip
import json
import os
import time
import uuid

from e2b import SandboxState
from e2b.api.client.models.sandbox_metric import SandboxMetric
from e2b.api.client.models.template import Template as ListedTemplate
from e2b.api.client.models.template_with_builds import TemplateWithBuilds
from e2b_code_interpreter import Sandbox as Interpreter
from support import native, wire
from support.waiting import until

INTERPRETER = 49999


def test_code_runs_for_those_who_have_the_token(interpreter):
    def execute(path="/execute", **headers):
        where = wire.place(interpreter.sandbox_id, INTERPRETER, **headers)
        return wire.send("POST", path, where, {"code": "6 * 7"})

    own = wire.token(interpreter)
    assert execute().status == 401 and execute(**{"X-Access-Token": "wrong"}).status == 401
    lines = [json.loads(line) for line in execute(**own).body.splitlines()]
    assert [line["type"] for line in lines] == ["number_of_executions", "result", "end_of_execution"]
    assert lines[0]["execution_count"] >= 1 and lines[1]["text"] == "42"
    # A URL with a slash at the end.
    assert execute("//execute", **own).status == 200
    # The clients send the other token here.
    assert wire.send("GET", "/contexts", wire.place(interpreter.sandbox_id, INTERPRETER, **own)).status == 200


def test_health_wakes_nothing_and_tells_strangers_of_no_other_dialects_sandbox(make):
    native_one = native.call("POST", "/v1/sandboxes", {"template": "base", "ttl_seconds": 300})
    path = f"/v1/sandboxes/{native_one['id']}"
    try:
        for port in (49983, INTERPRETER):
            answer = wire.send("GET", "/health", wire.place(native_one["id"].replace("-", ""), port))
            assert answer.status == 502 and b"was not found" in answer.body
        assert Interpreter.connect(native_one["id"].replace("-", "")).is_running()
        native.call("POST", f"{path}/hibernate")
        wire.send("GET", "/health", wire.place(native_one["id"].replace("-", "")))
        assert native.call("GET", path)["status"] == "hibernated"
    finally:
        native.call("DELETE", path)
    # Only clients with its token learn why it ended.
    answer = wire.send("GET", "/health", wire.place(native_one["id"].replace("-", "")))
    assert (answer.status, answer.json()["message"]) == (502, "The sandbox was not found")
    made = make(lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert wire.send("GET", "/health", wire.place(made.sandbox_id)).status == 204
    made.pause()
    assert not made.is_running() and made.get_info().state == SandboxState.PAUSED


def test_a_page_of_any_origin_may_use_a_sandbox(sandbox):
    asks = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}
    asks["Access-Control-Request-Headers"] = "x-access-token,e2b-sandbox-id"
    for path in ("/files", "/process.Process/Start", "/execute"):
        answer = wire.send("OPTIONS", path, asks)
        assert answer.status == 204 and answer.headers["access-control-allow-origin"] == "*"
        assert "x-access-token" in answer.headers["access-control-allow-headers"]
    assert wire.send("OPTIONS", "/v1/sandboxes", asks).headers.get("access-control-allow-origin") is None
    where = wire.place(sandbox.sandbox_id, **wire.token(sandbox))
    for path in ("/files?path=/etc/hostname", "/files?path=/no/such", "/health"):
        assert wire.send("GET", path, where).headers["access-control-allow-origin"] == "*"


def test_the_agents_own_routes(sandbox):
    where = wire.place(sandbox.sandbox_id, **wire.token(sandbox))
    envs = wire.send("GET", "/envs", where).json()
    assert envs["SHARED"] == "yes" and envs["E2B_SANDBOX"] == "true"
    assert wire.send("GET", "/envs", wire.place(sandbox.sandbox_id)).status == 401
    assert wire.send("POST", "/init", where, {}).status == 204
    assert wire.send("POST", "/init", where, {"envVars": {"A": "1"}}).status == 400
    assert wire.send("GET", "/metrics", where).json()["mem_total"] > 0


def test_a_stream_that_is_refused_ends_as_a_stream(sandbox):
    for headers, code in (({}, "unauthenticated"), (wire.token(sandbox), "invalid_argument")):
        where = wire.place(sandbox.sandbox_id, **headers, **{"Content-Type": "application/connect+json"})
        answer = wire.send("POST", "/process.Process/Start", where, wire.framed({"process": 1}))
        assert answer.status == 200 and answer.headers["content-type"] == "application/connect+json"
        assert answer.body[0] == 2 and json.loads(answer.body[5:])["error"]["code"] == code


def test_part_of_a_file_and_a_file_that_comes_compressed(sandbox, place):
    where = wire.place(sandbox.sandbox_id, **wire.token(sandbox))
    headers = {**where, "Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    assert wire.send("POST", f"/files?path={place}/packed", headers, gzip.compress(b"0123456789")).status == 200
    part = wire.send("GET", f"/files?path={place}/packed", {**where, "Range": "bytes=2-4"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")


def test_an_address_that_has_expired_is_no_address(sandbox, place):
    sandbox.files.write(f"{place}/f", "x")
    url = sandbox.download_url(f"{place}/f", use_signature_expiration=1)
    time.sleep(2.5)
    answer = wire.send("GET", url[len(os.environ["E2B_SANDBOX_URL"]) :])
    assert answer.status == 401 and b"expired" in answer.body


def test_what_older_and_other_clients_call(make):
    made = make(timeout=100)
    path = f"/sandboxes/{made.sandbox_id}"
    assert wire.send("POST", f"{path}/resume", wire.key(), {"timeout": 60}).status == 409
    made.pause()
    resumed = wire.send("POST", f"{path}/resume", wire.key(), {"timeout": 200})
    assert resumed.status == 201 and resumed.json()["sandboxID"] == made.sandbox_id
    before = made.get_info().end_at
    assert wire.send("POST", f"{path}/refreshes", wire.key(), {"duration": 900}).status == 204
    assert made.get_info().end_at > before
    listed = wire.send("GET", "/sandboxes", wire.key())
    assert made.sandbox_id in [entry["sandboxID"] for entry in listed.json()]
    assert int(listed.headers["x-total-running"]) == len(listed.json())
    measured = wire.send("GET", f"/sandboxes/metrics?sandbox_ids={made.sandbox_id},none", wire.key()).json()
    assert list(measured["sandboxes"]) == [made.sandbox_id]
    assert SandboxMetric.from_dict(measured["sandboxes"][made.sandbox_id]).mem_used > 0


def test_who_asks_for_what_has_ended_learns_why(make):
    made = make()
    made.kill()
    answer = wire.send("GET", f"/sandboxes/{made.sandbox_id}", wire.key())
    assert answer.status == 404 and answer.json()["message"].endswith("doesn't exist any more: it was killed")


def test_a_route_that_does_not_exist_is_refused_in_the_clients_format(sandbox):
    answer = wire.send("GET", "/no/such/route", wire.key())
    assert (answer.status, answer.json()["code"]) == (404, 404) and "no route" in answer.json()["message"]
    answer = wire.send("GET", "/no/such/route", wire.place(sandbox.sandbox_id, 49983))
    assert (answer.status, answer.json()["code"]) == (404, 404)
    answer = wire.send("POST", "/process.Process/Teleport", wire.place(sandbox.sandbox_id, 49983), {})
    assert (answer.status, answer.json()["code"]) == (501, "unimplemented")


def test_the_console_is_read_as_logs(sandbox):
    path = f"/sandboxes/{sandbox.sandbox_id}/logs"
    sandbox.commands.run("echo said >/dev/console", user="root")
    answer = until("the line", lambda: with_lines(wire.send("GET", path, wire.key()).json()))
    lines = [json.loads(entry["line"]) for entry in answer["logs"]]
    assert {"level": "info", "logger": "console", "message": "said"} in lines
    assert [line["message"] for line in lines] == [entry["message"] for entry in answer["logEntries"]]
    assert wire.send("GET", f"/v2{path}?limit=1", wire.key()).json()["logs"] == answer["logEntries"][:1]
    assert wire.send("GET", "/sandboxes/none/logs", wire.key()).status == 404


def with_lines(answer):
    return answer if any(entry["message"] == "said" for entry in answer["logEntries"]) else None


def test_templates_are_listed_as_the_client_would_read_them():
    for path in ("/templates", "/v2/templates?limit=100"):
        answer = wire.send("GET", path, wire.key())
        assert answer.status == 200
        listed = {template.template_id: template for template in map(ListedTemplate.from_dict, answer.json())}
        assert {"base", "code-interpreter"} <= set(listed)
        interpreter = listed["code-interpreter"]
        assert "code-interpreter-v1" in interpreter.names and interpreter.build_status.value == "ready"
        assert interpreter.public and interpreter.cpu_count >= 1 and interpreter.memory_mb >= 256
    shown = TemplateWithBuilds.from_dict(wire.send("GET", "/templates/code-interpreter-v1", wire.key()).json())
    assert shown.template_id == "code-interpreter" and [build.status.value for build in shown.builds] == ["ready"]
    assert wire.send("GET", "/templates/no-such-template", wire.key()).status == 404
    first = wire.send("GET", "/v2/templates?limit=1", wire.key())
    second = wire.send("GET", f"/v2/templates?limit=1&nextToken={first.headers['x-next-token']}", wire.key())
    [one], [other] = first.json(), second.json()
    assert one["templateID"] != other["templateID"]
    assert wire.send("GET", "/templates").status == 401


def test_a_template_belongs_to_its_workspace():
    def publish(path, **body):
        return wire.send("PATCH", path, wire.key(), body)

    for below in ("/v2/templates", "/templates"):
        assert "base" in publish(f"{below}/base", public=True).json()["names"]
        assert publish(f"{below}/base").status == 200
        refused = publish(f"{below}/base", public=False)
        assert refused.status == 400 and "built in" in refused.json()["message"]
        assert publish(f"{below}/no-such-template", public=True).status == 404


def test_a_list_that_cannot_be_read_is_refused():
    for query in ("metadata=key", "state=asleep", "order=up", "nextToken=x", "startedAfter=soon"):
        answer = wire.send("GET", f"/v2/sandboxes?{query}", wire.key())
        assert answer.status == 400 and answer.json()["code"] == 400, query


def test_a_page_goes_on_behind_what_has_ended(make):
    label = uuid.uuid4().hex
    made = [make(metadata={"key": label}) for _ in range(3)]
    query = f"/v2/sandboxes?limit=1&metadata=key%3D{label}"
    first = wire.send("GET", query, wire.key())
    assert first.headers["x-total-running"] == "3"
    assert first.json()[0]["sandboxID"] == made[2].sandbox_id
    made[2].kill()
    second = wire.send("GET", f"{query}&nextToken={first.headers['x-next-token']}", wire.key())
    assert second.json()[0]["sandboxID"] == made[1].sandbox_id
