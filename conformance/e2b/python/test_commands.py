"""Commands: output, exit codes, input and background commands."""

import time

import pytest
from e2b import CommandExitException, InvalidArgumentException, NotFoundException, TimeoutException
from support.waiting import until


def test_streams_and_exit_codes_are_true(sandbox):
    seen = {"out": [], "err": []}
    result = sandbox.commands.run(
        "echo one; echo two >&2; echo three", on_stdout=seen["out"].append, on_stderr=seen["err"].append
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("one\nthree\n", "two\n", 0)
    assert "".join(seen["out"]) == "one\nthree\n" and "".join(seen["err"]) == "two\n"
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("echo half; exit 7")
    assert (caught.value.exit_code, caught.value.stdout) == (7, "half\n")


def test_who_where_and_with_what(sandbox):
    def run(line, **options):
        return sandbox.commands.run(line, **options).stdout.strip()

    assert run("id -un; pwd; echo $SHARED") == "user\n/home/user\nyes"
    assert run("id -un; pwd", user="root") == "root\n/root"
    assert run("sudo id -un") == "root"
    assert run("pwd", cwd="/tmp") == "/tmp" and run("echo $X", envs={"X": "a b"}) == "a b"
    with pytest.raises(InvalidArgumentException):
        run("pwd", cwd="/no/such/directory")


def test_a_command_in_its_own_session_is_waited_for(sandbox):
    assert sandbox.commands.run("setsid sh -c 'sleep 0.3; echo hi'").stdout == "hi\n"
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("setsid sh -c 'exit 3'")
    assert failed.value.exit_code == 3


def test_much_output_comes_whole(sandbox):
    result = sandbox.commands.run("seq 1 200000")
    assert result.stdout.splitlines()[-1] == "200000" and len(result.stdout) == 1288895


def test_input_goes_to_the_command_until_it_is_closed(sandbox):
    command = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(command.pid, "one\n")
    command.send_stdin("two\n")
    command.close_stdin()
    assert command.wait().stdout == "one\ntwo\nend\n"


def test_a_command_in_the_background_is_found_again_and_killed(sandbox):
    command = sandbox.commands.run("echo begun; sleep 100", background=True)
    command.disconnect()
    running = {process.pid: process for process in sandbox.commands.list()}
    assert running[command.pid].args[-1] == "echo begun; sleep 100"
    again = sandbox.commands.connect(command.pid)
    assert sandbox.commands.kill(command.pid)
    with pytest.raises(CommandExitException) as caught:
        again.wait()
    assert caught.value.exit_code == -1 and "killed" in str(caught.value.error)
    assert not sandbox.commands.kill(command.pid)
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999999)


def test_a_deadline_ends_its_own_command_and_no_other(sandbox):
    other = sandbox.commands.run("sleep 50", background=True, timeout=0)
    begun = time.monotonic()
    with pytest.raises(TimeoutException):
        sandbox.commands.run("echo $$ >/tmp/slow; exec sleep 51", timeout=2)
    assert time.monotonic() - begun < 30
    until("the end of the slow command", lambda: "sleep 51" not in sandbox.commands.run("ps -ax").stdout)
    assert other.pid in [process.pid for process in sandbox.commands.list()]
    assert other.kill()


def test_input_comes_as_a_stream(sandbox):
    command = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.stream_input(command.pid, (f"{number}\n" for number in range(3)))
    command.close_stdin()
    assert command.wait().stdout == "0\n1\n2\nend\n"


def test_who_looks_again_looks_for_as_long_as_they_say(sandbox):
    command = sandbox.commands.run("sleep 100", background=True, timeout=0)
    command.disconnect()
    begun = time.monotonic()
    with pytest.raises(TimeoutException):
        sandbox.commands.connect(command.pid, timeout=2).wait()
    assert time.monotonic() - begun < 20
    assert sandbox.commands.kill(command.pid)


def test_a_terminal_is_looked_at_again_and_killed(sandbox):
    from e2b import PtySize

    terminal = sandbox.pty.create(PtySize(rows=30, cols=100))
    terminal.disconnect()
    again = sandbox.pty.connect(terminal.pid)
    sandbox.pty.send_stdin(terminal.pid, b"echo $((6 * 7))\n")
    seen = bytearray()
    for _, _, data in again:
        seen.extend(data or b"")
        if b"42" in seen:
            break
    assert sandbox.pty.kill(terminal.pid)
    until("its end", lambda: not sandbox.pty.kill(terminal.pid))


def test_a_terminal_is_one(sandbox):
    from e2b import PtySize

    seen = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=30, cols=100))
    # Bash sets the size that it has just read whenever it shows a prompt, and would undo a change in between.
    sandbox.pty.send_stdin(terminal.pid, b"tty; touch waits; read; stty size; exit\n")
    until("a command that waits", lambda: sandbox.files.exists("waits"))
    sandbox.pty.resize(terminal.pid, PtySize(rows=31, cols=101))
    sandbox.pty.send_stdin(terminal.pid, b"\n")
    terminal.wait(on_pty=seen.extend)
    assert b"/dev/pts/" in seen and b"31 101" in seen
