"""How long a sandbox lives, and whether it is paused."""

import time
from concurrent.futures import ThreadPoolExecutor

import pandastack
import pytest

from support.waiting import until
from support.wire import call

COUNTER = """
import time
n = 0
while True:
    n += 1
    with open("/tmp/count.new", "w") as file:
        file.write(str(n))
    __import__("os").replace("/tmp/count.new", "/tmp/count")
    time.sleep(0.02)
"""


def test_a_lifecycle_is_two_numbers_and_a_flag(sandbox):
    found = sandbox.lifecycle()
    assert type(found["ttl_seconds"]) is int and found["ttl_seconds"] > 0
    assert type(found["idle_seconds"]) is int and found["idle_seconds"] >= 0
    assert found["persistent"] is False


def test_set_ttl_is_answered_with_the_new_lifecycle_and_kept(make):
    sandbox = make()
    assert sandbox.set_ttl(1234)["ttl_seconds"] == 1234
    assert sandbox.lifecycle()["ttl_seconds"] == 1234


def test_a_time_to_live_begins_anew_when_the_sandbox_is_used(make):
    sandbox = make(ttl_seconds=5)
    for _ in range(4):
        time.sleep(2)
        assert sandbox.exec("echo here").stdout == "here\n"


def test_a_time_to_live_does_not_end_in_the_middle_of_a_command(make):
    sandbox = make(ttl_seconds=3)
    assert sandbox.exec("sleep 8; echo done", timeout_seconds=30).stdout == "done\n"
    streamed = []
    sandbox.exec_stream("sleep 8; echo done", on_stdout=streamed.append, timeout_seconds=30)
    assert "".join(streamed) == "done\n"


def test_a_time_to_live_ends_when_nobody_uses_the_sandbox(client, make):
    sandbox = make(ttl_seconds=2)
    sandbox.exec("true")
    gone = lambda: sandbox.id not in [known.id for known in client.sandboxes.list()]
    until("its time is over", gone, 15)


def test_set_persistent_goes_both_ways(client, make):
    sandbox = make()
    assert sandbox.set_persistent(True)["persistent"] is True
    assert client.sandboxes.get(sandbox.id).persistent is True
    assert sandbox.set_persistent(False)["persistent"] is False
    assert client.sandboxes.get(sandbox.id).persistent is False


def test_changing_one_setting_leaves_the_other(make):
    sandbox = make(ttl_seconds=900)
    assert sandbox.set_persistent(True)["ttl_seconds"] == 900
    assert sandbox.set_ttl(901)["persistent"] is True


def test_a_negative_ttl_is_refused_and_changes_nothing(sandbox):
    before = sandbox.lifecycle()["ttl_seconds"]
    with pytest.raises(pandastack.BadRequestError):
        sandbox.set_ttl(-1)
    assert sandbox.lifecycle()["ttl_seconds"] == before


@pytest.mark.parametrize("body", [{"ttl_seconds": "long"}, {"persistent": "yes"}, [], b"{"], ids=repr)
def test_a_lifecycle_of_the_wrong_type_is_a_400(sandbox, body):
    answer = call("PATCH", f"/v1/sandboxes/{sandbox.id}/lifecycle", body=body,
                  headers={"Content-Type": "application/json"})
    assert answer.status == 400 and answer.error


def test_pause_and_resume_show_in_the_status_and_may_be_repeated(make):
    sandbox = make()
    for _ in range(2):
        sandbox.pause()
        assert sandbox.refresh().status == "paused"
    for _ in range(2):
        sandbox.resume()
        assert sandbox.refresh().status == "running"
    assert sandbox.exec("echo back").stdout == "back\n"


def test_a_paused_sandbox_does_nothing_and_then_goes_on_where_it_was(make):
    sandbox = make()
    sandbox.filesystem.write("/tmp/counter.py", COUNTER)
    begin = "setsid python3 /tmp/counter.py >/dev/null 2>&1 </dev/null & until [ -s /tmp/count ]; do sleep 0.1; done"
    sandbox.exec(begin, check=True)

    def count():
        return int(sandbox.filesystem.read("/tmp/count"))

    first = count()
    time.sleep(1)
    rate = count() - first
    before = count()
    sandbox.pause()
    time.sleep(4)
    sandbox.resume()
    after = count()
    assert rate > 5
    assert after - before < 3 * rate, "it went on counting"
    time.sleep(1)
    assert count() > after, "it did not go on"


def test_a_command_for_a_paused_sandbox_is_answered_not_left_hanging(make):
    sandbox = make()
    sandbox.pause()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.exec, "echo awake", 10)
        try:
            assert running.result(timeout=25).stdout == "awake\n"
        except pandastack.BadRequestError as refused:
            assert "paused" in str(refused)
    sandbox.resume()
    assert sandbox.exec("echo awake").stdout == "awake\n"


def test_a_paused_sandbox_can_be_deleted(client, make):
    sandbox = make()
    sandbox.pause()
    sandbox.kill()
    with pytest.raises(pandastack.NotFoundError):
        client.sandboxes.get(sandbox.id)


@pytest.mark.parametrize("headers", [
    {}, {"Content-Type": "text/plain;charset=UTF-8"}, {"Content-Type": "application/json"},
    {"Content-Type": "application/octet-stream"},
], ids=str)
def test_a_post_without_a_body_is_accepted_whatever_its_type(sandbox, headers):
    for verb in ("pause", "resume"):
        answer = call("POST", f"/v1/sandboxes/{sandbox.id}/{verb}", headers={"Content-Length": "0", **headers})
        assert answer.status in (200, 204), answer.body
