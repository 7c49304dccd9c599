def test_the_example_runs_in_a_sandbox(run_example, monkeypatch):
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    # Prices are not needed here, and come from the internet.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    look, submit = "echo $((6 * 7)) at $PWD", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo It is 42."
    printed, heard = run_example("mini-SWE-agent", [[("bash", {"command": look})], [("bash", {"command": submit})]])
    assert printed.strip().splitlines()[-1] == "It is 42."
    assert "42 at /" in heard
