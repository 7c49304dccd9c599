"""Best of N: candidates side by side in forks, scored, the winner kept."""

from pandastack import Candidate, ExploreError, Sandbox

with Sandbox.create(template="base", ttl_seconds=900) as sandbox:
    sandbox.exec("mkdir -p /work && printf 'def add(a, b):\\n    return a - b\\n' >/work/add.py", check=True)
    test = "cd /work && python3 -c 'from add import add; assert add(2, 3) == 5; print(1)'"
    heard = []
    result = sandbox.explore(
        [
            Candidate("times", cmd=f"sed -i 's/a - b/a * b/' /work/add.py && {test}"),
            Candidate("plus", cmd=f"sed -i 's/a - b/a + b/' /work/add.py && {test}"),
            "false",
        ],
        score_fn=lambda fork, outcome: float(outcome.ok),
        on_outcome=lambda outcome: heard.append(outcome.label),
    )
    winner = result.winner
    try:
        assert result.winner_outcome.label == "plus" and result.winner_outcome.exit_code == 0
        assert "/work/add.py" in result.winner_outcome.files_changed
        assert len(result.outcomes) == len(heard) == 3
        assert winner.exec("grep -c 'a + b' /work/add.py").stdout == "1\n"
        assert winner.id not in result.reaped and len(result.reaped) == 2
    finally:
        winner.kill()
    try:
        sandbox.explore(["false", "exit 2"])
    except ExploreError:
        pass
    else:
        raise AssertionError("there is no winner among failures")
    assert sandbox.exec("grep -c 'a - b' /work/add.py").stdout == "1\n", "the original is as it was"
