"""A server that stops or is killed, and starts again: sandboxes continue."""

import pytest

from support.processes import is_alive, of_machine, until

ENDS = pytest.mark.parametrize("end", ["kill", "stop"])


@ENDS
def test_processes_files_and_output_go_on_under_the_same_id(serve, end):
    server, client = serve()
    sandbox = client.create(metadata={"whose": "mine"}, ttl_seconds=1800)
    path = f"/v1/sandboxes/{sandbox}"
    # It runs until it is stopped, so it must be the same process before and after.
    line = "echo before; until test -e /root/go; do sleep 0.2; done; echo after"
    client.call("POST", f"{path}/exec", {"cmd": line, "id": "lasting", "detached": True}).expect(202)
    known = client.call("GET", path).json()
    getattr(server, end)()
    client, _ = server.start()
    found = client.call("GET", path).expect(200).json()
    assert found == known
    client.run(sandbox, "touch /root/go")
    result = client.call("GET", f"{path}/execs/lasting/result", query={"wait": "true"}).expect(200).json()
    assert (result["stdout"], result["exit_code"]) == ("before\nafter\n", 0)
    assert [event["type"] for event in client.events(sandbox)] == ["sandbox.created", "sandbox.taken_over"]
    client.delete(sandbox)


@ENDS
def test_a_paused_sandbox_is_still_paused(serve, end):
    server, client = serve()
    sandbox = client.create()
    client.call("POST", f"/v1/sandboxes/{sandbox}/pause").expect(204)
    getattr(server, end)()
    client, _ = server.start()
    assert client.call("GET", f"/v1/sandboxes/{sandbox}").expect(200).json()["status"] == "paused"
    client.call("POST", f"/v1/sandboxes/{sandbox}/resume").expect(204)
    assert client.run(sandbox, "echo here") == "here\n"
    client.delete(sandbox)


@ENDS
def test_a_sleeping_sandbox_still_sleeps_and_wakes(serve, end):
    server, client = serve()
    sandbox = client.create()
    client.run(sandbox, "echo before > /root/file")
    client.call("POST", f"/v1/sandboxes/{sandbox}/hibernate").expect(200)
    getattr(server, end)()
    client, _ = server.start()
    assert client.call("GET", f"/v1/sandboxes/{sandbox}").expect(200).json()["status"] == "hibernated"
    assert client.run(sandbox, "cat /root/file") == "before\n"
    client.delete(sandbox)


@ENDS
def test_a_live_interpreter_keeps_its_variables(serve, end):
    server, client = serve()
    sandbox = client.create()
    path = f"/v1/sandboxes/{sandbox}/repl/sessions"
    client.call("POST", path, {"id": "live"}).expect(201)
    client.call("POST", f"{path}/live/run", {"code": "x = 41"}).expect(200)
    getattr(server, end)()
    client, _ = server.start()
    assert client.call("POST", f"{path}/live/run", {"code": "print(x + 1)"}).expect(200).json()["stdout"] == "42\n"
    client.delete(sandbox)


@ENDS
def test_a_build_that_was_cut_off_has_failed_and_its_machine_ends(serve, end):
    server, client = serve()
    order = {"name": "cut-off", "dockerfile": "FROM base\nRUN sleep 600\n"}
    build = client.call("POST", "/v1/templates/build", order).expect(202).json()["id"]
    [machine] = until("its machine is there", client.living)
    processes = until("its machine runs", lambda: of_machine(server.home / "sandboxes" / machine))
    # Twice, because the second server takes it over from the first.
    for _ in range(2):
        getattr(server, end)()
        client, _ = server.start()
        found = client.call("GET", f"/v1/templates/builds/{build}").expect(200).json()
        assert (found["status"], found["error"]) == ("failed", "the server was restarted")
        assert found in client.call("GET", "/v1/templates/builds").expect(200).json()
        until("its machine ends", lambda: not client.living() and not any(map(is_alive, processes)))
    assert client.events(machine)[-1]["type"] == "sandbox.ended"
    assert machine not in server.directories()


def test_a_sandbox_ends_at_its_time_although_no_server_is_there(serve):
    server, client = serve()
    sandbox = client.create(ttl_seconds=5)
    server.kill()
    machine = of_machine(server.home / "sandboxes" / sandbox)
    assert machine
    until("its machine ends", lambda: not any(map(is_alive, machine)), seconds=120)
    client, _ = server.start()
    client.call("GET", f"/v1/sandboxes/{sandbox}").expect(404)
    assert client.events(sandbox)[-1]["type"] == "sandbox.ended"
    assert sandbox not in server.directories()
