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


def test_metrics_are_real_numbers(make):
    sandbox = make()
    # A new sandbox may have used less than one clock tick.
    sandbox.exec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")

    def metrics():
        answer = call("GET", f"/v1/sandboxes/{sandbox.id}/metrics")
        assert answer.status == 200
        return answer.json()

    before = metrics()
    for name in ("cpu_ms", "memory_bytes", "host_rss_bytes", "disk_bytes", "host_cpu_percent"):
        assert before[name] > 0, name
    # Its share of shared memory is smaller than all of that memory.
    assert before["memory_bytes"] <= before["host_rss_bytes"]
    for name in ("network_received_bytes", "network_sent_bytes", "uptime_seconds"):
        assert type(before[name]) is int and before[name] >= 0, name
    assert 0 < before["guest"]["memory_available_bytes"] < before["guest"]["memory_total_bytes"]
    assert 0 < before["guest"]["disk_available_bytes"] < before["guest"]["disk_total_bytes"]
    sandbox.exec("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; head -c 20M /dev/urandom > /root/fill; sync", check=True)
    after = metrics()
    assert after["cpu_ms"] > before["cpu_ms"] and after["guest"]["cpu_ms"] > before["guest"]["cpu_ms"]
    assert after["disk_bytes"] > before["disk_bytes"] + (10 << 20)
    assert after["guest"]["disk_available_bytes"] < before["guest"]["disk_available_bytes"]


def test_time_series_have_their_shape(make):
    sandbox = make()
    answer = call("GET", f"/v1/metrics/sandbox/{sandbox.id}", query={"step": "15s"})
    assert answer.status == 200
    series = answer.json()
    assert (sorted(series), series["step"]) == (["from", "series", "step", "to"], "15s")
    assert sorted(series["series"]) == ["cpu_pct", "mem_bytes"]
    overview = call("GET", "/v1/metrics/overview").json()["series"]
    assert sum(count for _, count in overview["sb_creates"]) >= 1
    assert all(time.count(":") == 2 and value > 0 for time, value in overview["boot_p50"])
    for query in ({"step": "7s"}, {"from": "x"}, {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}):
        assert call("GET", "/v1/metrics/overview", query=query).status == 400


def test_a_sandbox_can_be_given_a_larger_disk():
    [template] = [found for found in call("GET", "/v1/templates").json() if found["name"] == "base"]
    wanted = template["disk_mb"] + 512
    made = call("POST", "/v1/sandboxes", body={"template": "base", "disk_mb": wanted, "ttl_seconds": 300}, timeout=120)
    assert made.status == 201, made.body
    sandbox = made.json()
    try:
        assert sandbox["disk_mb"] == wanted
        size = call("POST", f"/v1/sandboxes/{sandbox['id']}/exec", body={"cmd": "df --output=size -m / | tail -1"}).json()
        assert int(size["stdout"]) > wanted * 0.9
    finally:
        call("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    smaller = call("POST", "/v1/sandboxes", body={"template": "base", "disk_mb": 1})
    assert smaller.status == 400 and smaller.error


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
