def test_the_example_runs_in_a_sandbox(run_example):
    code = 'Thought: I run it.\n<code>\nprint("ran", 6 * 7)\nfinal_answer(6 * 7)\n</code>'
    printed, _ = run_example("smolagents", [code])
    assert "42" in printed.splitlines()
