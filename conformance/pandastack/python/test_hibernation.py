"""Hibernation: it uses no memory, loses nothing, and any use wakes the sandbox."""

from concurrent.futures import ThreadPoolExecutor

import pandastack
import pytest


def test_a_sandbox_that_slept_goes_on_where_it_was(make):
    sandbox = make()
    context = sandbox.create_code_context()
    context.run_code("x = 41")
    sandbox.exec("echo before > /root/file; setsid sleep 1000 </dev/null >/dev/null 2>&1 &", check=True)
    sleeper = sandbox.exec("pgrep -x sleep", check=True).stdout
    sandbox.hibernate()
    assert sandbox.refresh().status == "hibernated"
    sandbox.wake()
    assert sandbox.refresh().status == "running"
    assert sandbox.exec("cat /root/file; pgrep -x sleep").stdout == f"before\n{sleeper}"
    assert context.run_code("print(x + 1)").stdout == "42\n"


def test_both_may_be_repeated(make):
    sandbox = make()
    sandbox.wake()
    for _ in range(2):
        sandbox.hibernate()
    assert sandbox.refresh().status == "hibernated"
    for _ in range(2):
        sandbox.wake()
    assert sandbox.refresh().status == "running"


@pytest.mark.parametrize("use", [
    lambda sandbox: sandbox.exec("echo awake", check=True),
    lambda sandbox: sandbox.filesystem.read("/etc/hostname"),
    lambda sandbox: sandbox.filesystem.write("/root/new", b"x"),
    lambda sandbox: sandbox.create_code_context(),
    lambda sandbox: sandbox.exec_stream("echo awake"),
], ids=["exec", "read", "write", "context", "stream"])
def test_whatever_needs_it_wakes_it(make, use):
    sandbox = make()
    sandbox.hibernate()
    use(sandbox)
    assert sandbox.refresh().status == "running"


def test_many_who_need_it_at_once_wake_it_once(make):
    sandbox = make()
    sandbox.exec("echo 0 > /root/count", check=True)
    sandbox.hibernate()
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: sandbox.exec(f"echo {number} >> /root/count; echo ok").stdout, range(8)))
    assert said == ["ok\n"] * 8
    assert len(sandbox.exec("cat /root/count").stdout.split()) == 9


def test_a_sleeping_sandbox_is_listed_and_can_be_deleted(client, make):
    sandbox = make(metadata={"cma.session_id": "s"})
    sandbox.hibernate()
    found = next(listed for listed in client.sandboxes.list() if listed.id == sandbox.id)
    assert found.status == "hibernated" and found.metadata["cma.session_id"] == "s"
    sandbox.kill()
    with pytest.raises(pandastack.NotFoundError):
        client.sandboxes.get(sandbox.id)
