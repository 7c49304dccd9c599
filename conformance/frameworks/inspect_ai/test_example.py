import json


def answer(request, _):
    """What the model answers. Inspect first asks it a question of its own, without tools."""
    if not request.get("tools"):
        return "hello, world"
    if "42 at /" in json.dumps(request):
        return [("submit", {"answer": "It is 42."})]
    return [("bash", {"command": "echo $((6 * 7)) at $PWD"})]


def test_the_example_runs_in_a_sandbox(run_example):
    printed, heard = run_example("Inspect", answer)
    assert printed.splitlines()[-1] == "success C"
    assert "42 at /" in heard
