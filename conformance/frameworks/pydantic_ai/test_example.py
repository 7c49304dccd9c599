def test_the_example_runs_in_a_sandbox(run_example):
    printed, heard = run_example("Pydantic AI", [[("run_python", {"code": "print('ran', 6 * 7)"})], "It is 42."])
    assert printed.splitlines()[-1] == "It is 42."
    assert "ran 42" in heard


def test_the_example_with_a_workspace_runs_in_a_sandbox(run_example):
    printed, heard = run_example(
        "Pydantic AI with Sandling's own workspace",
        [[("run_command", {"command": "echo $((6 * 7)) at $PWD"})], "It is 42."],
    )
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /workspace" in heard
