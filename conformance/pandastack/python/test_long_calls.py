"""Calls that take longer than the Python client's timeout of 30 s. They run in parallel, to wait only once."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from support.server import PYTHON_AGENT
from support.wire import listen, raw_request

SECONDS = 36
#: The server must send bytes at least this often, for the client and for proxies.
SILENCE = 20


def raw_exec(sandbox, agent, command=f"sleep {SECONDS}; echo done", route="exec"):
    body = json.dumps({"cmd": command, "timeout_seconds": 100}).encode()
    headers = [("User-Agent", agent), ("Content-Type", "application/json"), ("Connection", "close")]
    started = time.monotonic()
    heard = listen(raw_request("POST", f"/v1/sandboxes/{sandbox.id}/{route}", headers=headers, body=body), 90)
    return SimpleNamespace(heard=heard, silence=heard.longest_silence(started, time.monotonic()))


def raw_follow(sandbox):
    path = f"/v1/sandboxes/{sandbox.id}/logs?stream=both&follow=true"
    started = time.monotonic()
    heard = listen(raw_request("GET", path, headers=[("User-Agent", PYTHON_AGENT)]), SECONDS)
    return SimpleNamespace(heard=heard, silence=heard.longest_silence(started, time.monotonic()))


@pytest.fixture(scope="module")
def calls(sandbox, interpreter):
    context = interpreter.create_code_context()
    jobs = {
        "exec": lambda: sandbox.exec(f"sleep {SECONDS}; echo done; exit 5", timeout_seconds=100),
        "cell": lambda: context.run_code(f"import time; time.sleep({SECONDS}); 'done'", timeout_seconds=100),
        "python": lambda: raw_exec(sandbox, PYTHON_AGENT),
        "late failure": lambda: raw_exec(sandbox, PYTHON_AGENT, command=f"sleep {SECONDS}; exit 3"),
        "node": lambda: raw_exec(sandbox, "node"),
        "stream": lambda: raw_exec(sandbox, "node", route="exec/stream"),
        "follow": lambda: raw_follow(sandbox),
    }
    with ThreadPoolExecutor(len(jobs)) as pool:
        yield {name: pool.submit(job) for name, job in jobs.items()}
    context.close()


def test_an_exec_outlives_the_clients_idle_limit(calls):
    result = calls["exec"].result()
    assert (result.stdout, result.exit_code) == ("done\n", 5)


def test_a_cell_outlives_the_clients_idle_limit(calls):
    assert calls["cell"].result().text == "'done'"


def test_the_python_client_is_sent_interim_answers_while_it_waits(calls):
    call = calls["python"].result()
    assert call.heard.interim >= 2
    assert call.silence < SILENCE
    assert call.heard.final_status == 200
    assert call.heard.bytes.count(b"HTTP/1.1 ") == call.heard.interim + 1, "one final answer"
    assert b'"done\\n"' in call.heard.bytes


def test_the_status_is_still_open_while_interim_answers_are_sent(calls):
    call = calls["late failure"].result()
    assert call.heard.interim >= 2 and call.heard.final_status == 200
    assert json.loads(call.heard.bytes.rsplit(b"\r\n\r\n", 1)[1])["exit_code"] == 3


def test_node_is_never_sent_an_interim_answer(calls):
    call = calls["node"].result()
    assert call.heard.interim == 0
    assert call.heard.bytes.startswith(b"HTTP/1.1 200 ")


def test_a_silent_stream_is_kept_alive_by_comments(calls):
    call = calls["stream"].result()
    assert call.silence < SILENCE
    assert call.heard.bytes.count(b"\n:") >= 2 and call.heard.interim == 0
    assert b'"exit_code"' in call.heard.bytes


def test_followed_logs_are_kept_alive_by_comments(calls):
    call = calls["follow"].result()
    assert call.heard.bytes.startswith(b"HTTP/1.1 200 ")
    assert call.silence < SILENCE
