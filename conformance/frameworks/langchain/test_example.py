def test_the_example_of_langgraph_runs_in_a_sandbox(run_example):
    printed, heard = run_example("LangGraph", [[("run_python", {"code": "print('ran', 6 * 7)"})], "It is 42."])
    assert printed.splitlines()[-1] == "It is 42."
    assert "ran 42" in heard


def test_the_example_of_deep_agents_runs_in_a_sandbox(run_example):
    printed, heard = run_example("Deep Agents", [[("execute", {"command": "echo $((6 * 7)) at $PWD"})], "It is 42."])
    assert printed.splitlines()[-1] == "It is 42."
    assert "42 at /home/user" in heard
