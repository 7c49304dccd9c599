def test_the_example_runs_in_a_sandbox(run_example):
    command = "echo $((6 * 7)) at $PWD"
    script = [[("bash", {"cmd": command})], [("submit", {"answer": "It is 42."})]]
    printed, heard = run_example("Inspect", script)
    assert printed.splitlines()[-1] == "success C"
    assert "42 at /" in heard
