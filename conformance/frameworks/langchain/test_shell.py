"""What LangChain's shell expects of an execution policy, through its own `ShellSession`."""

import os

import pytest
from langchain.agents.middleware.shell_tool import ShellSession
from sandling import Sandbox
from sandling.langchain import SandboxExecutionPolicy


def test_the_example_runs_in_a_sandbox(run_example):
    script = [
        [("shell", {"command": "cd /usr; answer=$((6 * 7))"})],
        [("shell", {"command": "echo $answer at $PWD"})],
        "It is 42.",
    ]
    printed, heard = run_example("LangChain's shell", script)
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /usr" in heard


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("base", ttl_seconds=900) as made:
        yield made


@pytest.fixture
def shell(sandbox, tmp_path):
    policy = SandboxExecutionPolicy(sandbox, cwd="/tmp", command_timeout=20, termination_timeout=2)
    made = ShellSession(tmp_path, policy, ("/bin/bash",), {"COLOR": "blue"})
    made.start()
    yield made
    made.stop(10)


def test_output_exit_codes_and_variables(shell):
    ran = shell.execute("echo $COLOR in $PWD; echo oops >&2; ( exit 3 )", timeout=20)
    assert ran.exit_code == 3 and "blue in /tmp" in ran.output and "[stderr] oops" in ran.output
    shell.execute("cd /usr; export COLOR=red", timeout=20)
    assert shell.execute("echo $COLOR in $PWD; hostname", timeout=20).output.startswith("red in /usr\n")
    assert shell.execute("printf 'caf\\303\\251 \\377\\n'", timeout=20).output == "café \ufffd\n"
    assert shell.execute("uname -n", timeout=20).output.strip() != os.uname().nodename


def test_long_output_and_long_input_arrive_whole(shell):
    ran = shell.execute("seq 200000 | sed 's/$/ of many lines/'", timeout=60)
    assert ran.exit_code == 0 and ran.total_lines == 200_000 and ran.truncated_by_lines
    # More than one message. bash reads its input byte by byte, so this is slow.
    text = "x" * 70_000
    assert shell.execute(f"cat >long <<'END'\n{text}\nEND\nwc -c <long", timeout=200).output == "70001\n"


def test_a_command_that_takes_too_long_is_ended_and_the_shell_starts_again(shell, sandbox):
    assert shell.execute("sleep 987", timeout=2).timed_out
    assert sandbox.exec(["pgrep", "-x", "sleep"]).exit_code == 1
    assert shell.execute("echo again $COLOR", timeout=20).output == "again blue\n"


def test_a_shell_that_exits_says_so(shell):
    process = shell._process
    process.stdin.write("exit 7\n")
    process.stdin.flush()
    assert process.wait(20) == 7 and process.poll() == 7
    with pytest.raises(RuntimeError, match="not running"):
        shell.execute("echo more", timeout=5)
    with pytest.raises(BrokenPipeError):
        process.kill()


def test_a_shell_that_cannot_start_raises(sandbox, tmp_path):
    policy = SandboxExecutionPolicy(sandbox, cwd="/no/such/directory")
    with pytest.raises(Exception, match="no/such/directory"):
        ShellSession(tmp_path, policy, ("/bin/bash",), {}).start()
