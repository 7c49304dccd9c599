def test_the_example_runs_in_a_sandbox(run_example):
    printed, heard = run_example("CrewAI", [[("e2b_sandbox_python", {"code": "print('ran', 6 * 7)"})], "It is 42."])
    assert printed.splitlines()[-1] == "It is 42."
    assert "ran 42" in heard
