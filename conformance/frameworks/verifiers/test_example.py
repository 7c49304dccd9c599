def test_the_example_runs_in_a_sandbox(run_example):
    printed, _ = run_example("verifiers", [])
    assert printed.strip() == "42 in /app"
