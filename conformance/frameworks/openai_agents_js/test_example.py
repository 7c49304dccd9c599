def test_the_example_runs_in_a_sandbox(run_example, monkeypatch):
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    printed, heard = run_example(
        "OpenAI Agents SDK in JavaScript", [[("exec_command", {"cmd": "echo $((6 * 7)) at $PWD"})], "It is 42."]
    )
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /workspace" in heard
