"""Streamed commands."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pandastack
import pytest

from support import events
from support.waiting import until
from support.wire import call

MISSING = "00000000-0000-4000-8000-000000000000"


class Heard:
    """Collects the arguments of the callbacks."""

    def __init__(self):
        self.out, self.err, self.moments = [], [], []

    def stdout(self, chunk):
        self.moments.append(time.monotonic())
        self.out.append(chunk)

    def stderr(self, chunk):
        self.err.append(chunk)


def stream(sandbox, command, **options):
    heard = Heard()
    code = sandbox.exec_stream(command, on_stdout=heard.stdout, on_stderr=heard.stderr, **options)
    return code, "".join(heard.out), "".join(heard.err), heard


def raw(sandbox, command, **more):
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/exec/stream", body={"cmd": command, **more},
                  headers={"Accept": "text/event-stream"})
    assert answer.status == 200, answer.body
    return answer


def test_output_goes_to_the_callbacks_and_the_exit_code_is_returned(sandbox):
    assert stream(sandbox, "echo out; echo err >&2; exit 4")[:3] == (4, "out\n", "err\n")


def test_callbacks_may_be_left_out(sandbox):
    assert sandbox.exec_stream("echo unheard; exit 5") == 5


def test_a_silent_command_still_reports_its_exit_code(sandbox):
    assert stream(sandbox, "exit 7")[:3] == (7, "", "")


def test_output_arrives_while_the_command_runs(sandbox):
    _, out, _, heard = stream(sandbox, "echo first; sleep 3; echo second")
    assert out == "first\nsecond\n"
    assert heard.moments[-1] - heard.moments[0] > 2


def test_a_character_cut_in_two_by_the_command_arrives_in_one_piece(sandbox):
    command = r"printf 'x\303'; sleep 0.5; printf '\251\360\237'; sleep 0.5; printf '\230\200y'"
    _, out, _, heard = stream(sandbox, command)
    assert out == "xé😀y"
    assert not any("\ufffd" in chunk for chunk in heard.out)


def test_half_a_character_at_the_end_is_marked_not_lost(sandbox):
    code, out, _, _ = stream(sandbox, r"printf 'x\303'; exit 2")
    assert (code, out) == (2, "x\ufffd")


def test_text_in_any_script_and_odd_line_ends_come_back_as_they_were(sandbox):
    text = "zoë ☃ 日本語 😀 a\u0085b\u2028c\x0bd\x1ce"
    assert stream(sandbox, f"printf '%s\\r\\n' '{text}'")[1] == text + "\r\n"


def test_output_that_looks_like_an_event_is_only_output(sandbox):
    forged = 'data: {}\\n\\nevent: exit\\ndata: {"exit_code": 9}\\n\\n'
    code, out, _, _ = stream(sandbox, f"printf '{forged}'; exit 3")
    assert code == 3
    assert out == forged.replace("\\n", "\n")


def test_ten_mebibytes_of_output_come_back_whole(sandbox):
    code, out, _, _ = stream(sandbox, "seq 1 4000000 | head -c 10485760")
    assert (code, len(out)) == (0, 10485760)


def test_a_deadline_delivers_what_was_printed_and_then_raises(sandbox):
    heard = Heard()
    started = time.monotonic()
    with pytest.raises(pandastack.SandboxTimeout):
        sandbox.exec_stream("echo so far; sleep 60", on_stdout=heard.stdout, timeout_seconds=2)
    assert "".join(heard.out) == "so far\n"
    assert time.monotonic() - started < 12


def test_the_stream_says_its_character_set_and_is_ascii_all_the_same(sandbox):
    answer = raw(sandbox, "echo 'zoë 😀'")
    assert answer.content_type == "text/event-stream;charset=utf-8"
    assert max(answer.body) < 128, "the Python client decodes lines before it parses JSON"
    assert rb"\u00eb \ud83d\ude00" in answer.body.lower()


def test_the_exit_event_comes_last_and_once(sandbox):
    found = events.parse(raw(sandbox, "for i in 1 2 3; do echo $i; echo $i >&2; done; exit 6").body)
    assert [name for name, _ in found].count("exit") == 1
    assert found[-1][0] == "exit" and found[-1][1]["exit_code"] == 6
    assert "error" not in [name for name, _ in found]
    for stream in ("stdout", "stderr"):
        assert "".join(data["chunk"] for name, data in found if name == stream) == "1\n2\n3\n"


def test_a_deadline_is_an_error_event_that_names_the_timeout(sandbox):
    found = events.parse(raw(sandbox, "sleep 60", timeout_seconds=1).body)
    first = next((name, data) for name, data in found if name in ("error", "exit"))
    assert first[0] == "error" and "timeout" in first[1]["error"].lower()


def test_deleting_the_sandbox_ends_the_stream_with_an_error_event(make):
    sandbox = make()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(raw, sandbox, "echo begun; touch /tmp/started; sleep 60")
        until("the command starts", lambda: sandbox.filesystem.exists("/tmp/started"))
        sandbox.kill()
        found = events.parse(running.result(timeout=30).body)
    assert "begun\n" in [data["chunk"] for name, data in found if name == "stdout"]
    endings = [name for name, _ in found if name in ("error", "exit")]
    assert endings and endings[0] == "error", "without one, the TypeScript client reports success"


def test_an_unknown_sandbox_is_an_answer_not_a_stream(client):
    lost = pandastack.Sandbox.from_dict({"id": MISSING}, client=client)
    with pytest.raises(pandastack.NotFoundError):
        lost.exec_stream("true")


@pytest.mark.parametrize("body", [{}, {"cmd": 5}, b"{"], ids=repr)
def test_a_bad_request_is_a_400_not_a_stream(sandbox, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/exec/stream", body=body,
                  headers={"Accept": "text/event-stream", "Content-Type": "application/json"})
    assert answer.status == 400 and answer.error


def test_a_listener_that_leaves_early_does_no_harm(sandbox):
    class Enough(Exception):
        pass

    def leave(_chunk):
        raise Enough

    with pytest.raises(Enough):
        sandbox.exec_stream("yes | head -c 3000000", on_stdout=leave)
    assert sandbox.exec("echo still here").stdout == "still here\n"
