"""Creating, finding and ending sandboxes."""

import datetime
import time
import uuid

import pytest
from e2b import (
    AuthenticationException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
)
from support import native
from support.waiting import until

MISSING = "0" * 12 + "4" + "0" * 3 + "8" + "0" * 15


def test_a_sandbox_says_what_it_is(make):
    key = uuid.uuid4().hex
    made = make("base", timeout=120, metadata={"key": key, "with space": "é&="}, envs={"A": "1"})
    info = made.get_info()
    assert info.sandbox_id == made.sandbox_id and made.sandbox_id.isalnum()
    assert info.template_id == "base" and info.metadata == {"key": key, "with space": "é&="}
    assert info.state == SandboxState.RUNNING and info.cpu_count >= 1 and info.memory_mb >= 256
    left = info.end_at - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(seconds=60) < left <= datetime.timedelta(seconds=121)
    assert made.is_running()
    assert made.commands.run("echo $A $E2B_SANDBOX $E2B_SANDBOX_ID").stdout == f"1 true {made.sandbox_id}\n"


def test_lists_are_filtered_and_come_in_pages(make):
    key = uuid.uuid4().hex
    made = [make(metadata={"key": key, "number with space": f"{number} &"}) for number in range(3)]
    pages = Sandbox.list(query=SandboxQuery(metadata={"key": key}), limit=2)
    found = pages.next_items()
    assert len(found) == 2 and pages.has_next
    found += pages.next_items()
    assert not pages.has_next
    # The newest first.
    assert [info.sandbox_id for info in found] == [sandbox.sandbox_id for sandbox in reversed(made)]
    one = Sandbox.list(query=SandboxQuery(metadata={"number with space": "1 &", "key": key})).next_items()
    assert [info.sandbox_id for info in one] == [made[1].sandbox_id]
    assert Sandbox.list(query=SandboxQuery(metadata={"key": key}, state=[SandboxState.PAUSED])).next_items() == []
    made[0].pause()
    paused = Sandbox.list(query=SandboxQuery(metadata={"key": key}, state=[SandboxState.PAUSED])).next_items()
    assert [info.sandbox_id for info in paused] == [made[0].sandbox_id]


def test_what_has_ended_is_gone_and_says_so(make):
    made = make()
    assert made.kill() and not made.kill()
    assert not made.is_running()
    with pytest.raises(NotFoundException):
        made.get_info()
    with pytest.raises(Exception, match="not found|not running"):
        made.commands.run("true")
    with pytest.raises(NotFoundException):
        Sandbox.connect(MISSING)


def test_what_is_out_of_reach_says_why(make):
    killed, over, asleep, dead = make(), make(), make(), make()
    killed.kill()
    asleep.pause()
    with pytest.raises(SandboxNotRunningException, match="its guest died"):
        dead.commands.run("echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 100", user="root")
    over.set_timeout(3)
    with pytest.raises(SandboxNotRunningException, match="reached its end of life: its time to live was over"):
        over.commands.run("sleep 100")
    causes = [
        (killed, "it was killed"),
        (over, "its time to live was over"),
        (asleep, "it is paused, connect to it to resume"),
        (dead, "its guest died"),
    ]
    for made, cause in causes:
        for call in (made.commands.run, made.commands.list, made.files.read, made.files.list):
            arguments = [] if call == made.commands.list else ["true"]
            with pytest.raises(SandboxNotRunningException, match=f"The sandbox was not found: {cause}"):
                call(*arguments)
        assert not made.is_running()


def test_a_timeout_is_set_anew_and_connecting_never_shortens_it(make):
    made = make(timeout=100)
    made.set_timeout(600)
    longer = made.get_info().end_at
    Sandbox.connect(made.sandbox_id, timeout=10)
    assert made.get_info().end_at == longer
    made.set_timeout(60)
    assert made.get_info().end_at < longer
    with pytest.raises(SandboxException):
        made.set_timeout(-1)


def test_rules_open_tls_to_their_host_until_they_are_cleared(make):
    # That the headers arrive is tested with a server that says so, in the engine's tests.
    rules = {"pypi.org": [{"transform": {"headers": {"X-Key": "1"}}}]}
    made = make(timeout=120, network={"allow_out": ["pypi.org"], "rules": rules})
    assert made.get_info().network["rules"] == {"pypi.org": [{"transform": {"headers": {"x-key": "1"}}}]}
    ask = "curl -sv -m 60 -o /dev/null https://pypi.org/simple/six/ 2>&1 | grep -e '< HTTP' -e 'issuer:'"
    answer = made.commands.run(ask).stdout
    assert " 200" in answer and "Sandling" in answer, answer
    made.update_network({"allow_out": ["pypi.org"]})
    assert not made.get_info().network.get("rules")
    # Test hosts may have a mirror whose authority the sandbox does not know.
    answer = made.commands.run(ask.replace("-sv", "-skv")).stdout
    assert " 200" in answer and "issuer:" in answer and "Sandling" not in answer, answer
    with pytest.raises(SandboxException, match="Host"):
        make(network={"rules": {"pypi.org": [{"transform": {"headers": {"Host": "example.org"}}}]}})


def test_a_timeout_of_zero_ends_or_pauses_at_once(make):
    made = make(timeout=100)
    made.set_timeout(0)
    assert not made.is_running()
    pausing = make(timeout=100, lifecycle={"on_timeout": "pause"})
    pausing.set_timeout(0)
    assert pausing.get_info().state == SandboxState.PAUSED
    short = make(timeout=0)
    until("its end", lambda: not short.is_running())


def test_a_sandbox_whose_time_is_over_does_not_run_although_its_machine_takes_time_to_end(make):
    def wait_for_the_end_of(made):
        time.sleep(max(0, (made.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()))

    ending, pausing = make(timeout=100), make(timeout=100, lifecycle={"on_timeout": "pause"})
    ending.set_timeout(2)
    wait_for_the_end_of(ending)
    assert not ending.is_running()
    assert ending.sandbox_id not in [one.sandbox_id for one in Sandbox.list().next_items()]
    pausing.set_timeout(2)
    wait_for_the_end_of(pausing)
    assert not pausing.is_running()
    assert pausing.get_info().state == SandboxState.PAUSED


def test_a_wrong_key_and_a_wrong_template_are_refused():
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_" + "00" * 20)
    with pytest.raises(SandboxException, match="there is no template"):
        Sandbox.create("no-such-template")


def test_what_cannot_be_had_is_refused_with_a_sentence():
    with pytest.raises(SandboxException, match="cannot be denied"):
        Sandbox.create(network={"deny_out": ["example.org"]})
    with pytest.raises(SandboxException, match="not the name of a header that a rule can set"):
        rules = {"example.org": [{"transform": {"headers": {"Host": "example.com"}}}]}
        Sandbox.create(network={"allow_out": ["example.org"], "rules": rules})
    with pytest.raises(SandboxException, match="public DNS resolver"):
        Sandbox.create(network={"allow_out": ["1.1.1.1"]})
    with pytest.raises(SandboxException, match="volume"):
        Sandbox.create(volume_mounts={"/data": "no-such-volume"})


def test_rules_of_the_network_are_kept(make):
    made = make(network={"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
    assert native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network")["allow"] == ["example.org"]
    assert made.get_info().network["allow_out"] == ["example.org"]
    made.update_network({"deny_out": ["0.0.0.0/0"]})
    assert native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network")["mode"] == "deny"


def test_parts_of_what_is_open_are_denied(make):
    made = make(network={"allow_out": ["0.0.0.0/0"], "deny_out": ["192.0.2.0/24"]})
    own = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network")
    assert (own["mode"], own["deny"]) == ("open", ["192.0.2.0/24"])
    # 192.0.2.0/24 and 198.51.100.0/24 are reserved. The server of these tests opens them.
    refused = made.commands.run("curl --silent --max-time 5 http://192.0.2.1/ || echo $?").stdout
    events = native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network/events")["events"]
    assert refused and "denied" in [event["code"] for event in events], events
    assert made.get_info().network["deny_out"] == ["192.0.2.0/24"]


def test_without_the_internet_only_what_is_listed_is_left(make):
    made = make(allow_internet_access=False)
    assert native.call("GET", f"/v1/sandboxes/{made.sandbox_id}/network")["mode"] == "deny"
    assert made.get_info().allow_internet_access is False
    listed = make(allow_internet_access=False, network={"allow_out": ["example.org"]})
    assert native.call("GET", f"/v1/sandboxes/{listed.sandbox_id}/network")["allow"] == ["example.org"]


def test_an_idempotency_key_makes_one_sandbox(make):
    key = uuid.uuid4().hex
    assert make(idempotency_key=key).sandbox_id == make(idempotency_key=key).sandbox_id


def test_metrics_are_of_now_or_of_a_span(sandbox):
    [metrics] = sandbox.get_metrics()
    assert metrics.cpu_count >= 1 and 0 <= metrics.cpu_used_pct <= 100 * metrics.cpu_count
    assert 0 < metrics.mem_used < metrics.mem_total and 0 < metrics.disk_used < metrics.disk_total
    hour = datetime.timedelta(hours=1)
    now = datetime.datetime.now(datetime.timezone.utc)
    assert sandbox.get_metrics(start=now - 2 * hour, end=now - hour) == []
    deadline = time.monotonic() + 60
    while len(samples := sandbox.get_metrics(start=now - hour, end=now + hour)) < 2:
        assert time.monotonic() < deadline, samples
        time.sleep(1)
    assert all(0 < sample.mem_used <= sample.mem_total for sample in samples)
    assert [sample.timestamp for sample in samples] == sorted(sample.timestamp for sample in samples)
