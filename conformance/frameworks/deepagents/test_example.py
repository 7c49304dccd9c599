def test_the_example_runs_in_a_sandbox(run_example):
    command = "echo $((6 * 7)) at $PWD"
    printed, heard = run_example(
        "Deep Agents with Sandling's own backend", [[("execute", {"command": command})], "It is 42."]
    )
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /" in heard
