import pytest


@pytest.mark.parametrize("title", ["OpenAI Agents SDK", "OpenAI Agents SDK with Sandling's own client"])
def test_the_example_runs_in_a_sandbox(run_example, title):
    printed, heard = run_example(title, [[("exec_command", {"cmd": "echo $((6 * 7)) at $PWD"})], "It is 42."])
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /workspace" in heard
