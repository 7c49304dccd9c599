"""Commands: output, exit codes, timeouts."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pandastack
import pytest

from support.waiting import until
from support.wire import call


def test_stdout_stderr_and_exit_code_come_apart(sandbox):
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)


def test_commands_run_is_exec(sandbox):
    assert sandbox.commands.run("echo hello", timeout=20).stdout == "hello\n"


@pytest.mark.parametrize("command, code", [
    ("true", 0), ("false", 1), ("exit 255", 255), ("no-such-command-here", 127), ("kill -9 $$", 137),
])
def test_exit_codes_are_true(sandbox, command, code):
    assert sandbox.exec(command).exit_code == code


def test_check_raises_with_the_whole_result(sandbox):
    with pytest.raises(pandastack.CommandFailed) as failed:
        sandbox.exec("echo partial; echo why >&2; exit 9", check=True)
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (9, "partial\n", "why\n")


def test_check_is_silent_on_success(sandbox):
    assert sandbox.exec("echo fine", check=True).stdout == "fine\n"


def test_the_command_is_a_shell_line(sandbox, scratch):
    result = sandbox.exec(f"""cd {scratch} && X='a "b"' && printf '%s|' "$X" $(seq 3) > f; cat < f | tr '|' '-'""")
    assert result.stdout == 'a "b"-1-2-3-'


def test_text_in_any_script_comes_back_as_it_was(sandbox):
    text = "zoë ☃ 日本語 😀 \u0085\u2028 end"
    result = sandbox.exec(f"printf %s '{text}'; printf %s '{text}' >&2")
    assert (result.stdout, result.stderr) == (text, text)


def test_bytes_that_are_not_text_do_not_break_the_answer(sandbox):
    result = sandbox.exec(r"printf 'a\377\376b'; printf 'c\0d' >&2")
    assert result.stdout[0] + result.stdout[-1] == "ab" and "\ufffd" in result.stdout
    assert result.stderr == "c\0d"


def test_five_mebibytes_of_output_come_back_whole(sandbox):
    result = sandbox.exec("seq 1 2000000 | head -c 5242880")
    assert len(result.stdout) == 5242880
    assert result.stdout.startswith("1\n2\n3\n") and result.exit_code == 0


def test_a_command_that_reads_finds_the_end_of_its_input(sandbox):
    assert sandbox.exec("cat; echo done", timeout_seconds=20).stdout == "done\n"


def test_many_commands_run_at_once(sandbox):
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: sandbox.exec(f"sleep 2; echo {n}").stdout, range(8)))
    assert results == [f"{n}\n" for n in range(8)]
    assert time.monotonic() - started < 12, "they ran one after another"


def test_a_background_process_outlives_its_command(sandbox, scratch):
    started = time.monotonic()
    sandbox.exec(f"setsid sh -c 'sleep 3; echo late > {scratch}/late' >/dev/null 2>&1 </dev/null &", check=True)
    assert time.monotonic() - started < 3
    until("the process writes its file", lambda: sandbox.filesystem.exists(f"{scratch}/late"))


def test_a_deadline_ends_the_command_in_time(sandbox):
    started = time.monotonic()
    with pytest.raises(pandastack.SandboxTimeout):
        sandbox.exec("sleep 60", timeout_seconds=1)
    assert 1 <= time.monotonic() - started < 10


def test_a_deadline_ends_the_children_too(sandbox):
    mark = f"31{uuid.uuid4().int % 10**7:07}"
    with pytest.raises(pandastack.SandboxTimeout):
        sandbox.exec(f"sleep {mark} & (sleep {mark}; true) & sleep {mark}; true", timeout_seconds=1)
    # The brackets keep the pattern from matching its own shell.
    alive = f"pgrep -fc '[s]leep {mark}'"
    until("the children end", lambda: sandbox.exec(alive).stdout == "0\n", 10)


def test_a_deadline_that_is_kept_changes_nothing(sandbox):
    assert sandbox.exec("echo quick", timeout_seconds=30).stdout == "quick\n"


def test_after_a_deadline_the_sandbox_goes_on(sandbox):
    with pytest.raises(pandastack.SandboxTimeout):
        sandbox.exec("while :; do :; done", timeout_seconds=1)
    assert sandbox.exec("echo still here").stdout == "still here\n"


def test_a_deadline_is_a_504_that_names_the_timeout_and_keeps_the_output(sandbox):
    command = {"cmd": "echo so far; echo and here >&2; sleep 60", "timeout_seconds": 2}
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/exec", body=command)
    assert answer.status == 504
    assert "timeout" in answer.error.lower() and "i/o timeout" not in answer.error.lower()
    assert (answer.json()["stdout"], answer.json()["stderr"]) == ("so far\n", "and here\n")


def test_the_answer_has_numbers_where_the_clients_need_them(sandbox):
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/exec", body={"cmd": "sleep 0.2"})
    assert answer.status == 200
    assert answer.content_type.startswith("application/json")
    found = answer.json()
    assert type(found["exit_code"]) is int
    assert type(found["duration_ms"]) is int and 200 <= found["duration_ms"] < 10_000


@pytest.mark.parametrize("body", [
    {}, {"cmd": 5}, {"cmd": None}, {"cmd": "true", "timeout_seconds": "soon"}, {"cmd": "true", "timeout_seconds": -1},
    [], "true", b"{", b"", b"\xff\xfe",
], ids=repr)
def test_a_bad_request_is_a_400(sandbox, body):
    headers = {"Content-Type": "application/json"}
    answer = call("POST", f"/v1/sandboxes/{sandbox.id}/exec", body=body, headers=headers)
    assert answer.status == 400, answer.body
    assert answer.error


def test_deleting_the_sandbox_ends_a_command_in_flight_with_an_error(make):
    sandbox = make()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.exec, "touch /tmp/started; sleep 60", 90)
        until("the command starts", lambda: sandbox.filesystem.exists("/tmp/started"))
        sandbox.kill()
        with pytest.raises(pandastack.PandastackError) as ended:
            running.result(timeout=20)
    assert not isinstance(ended.value, pandastack.SandboxTimeout), "it was deleted, its time was not up"
