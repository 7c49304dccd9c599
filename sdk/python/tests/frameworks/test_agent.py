"""The agent loop, through the official SDKs, with a scripted model and a real sandbox."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from model_server import Drop, ModelServer, Refusal, Turn, strings

from sandling import Agent, AsyncAgent, AsyncClient, AsyncSandbox, Budget, Client, ConfigError, NotFoundError, Sandbox
from sandling.agents import Spent, score_of

Model = Callable[..., ModelServer]

SCRIPT = (
    [("write_file", {"path": "/workspace/n.txt", "content": "6 7"})],
    [("run_code", {"code": "a, b = map(int, open('/workspace/n.txt').read().split())\na * b"})],
    [("run_command", {"command": "cat /nowhere; exit 3"}), ("fly", {})],
    "It is 42.",
)


def point(monkeypatch: pytest.MonkeyPatch, server: ModelServer) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_the_loop(model: Model, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: str) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    server = model(*SCRIPT)
    point(monkeypatch, server)
    heard = []
    contexts = len(sandbox.contexts.list())
    transcript = tmp_path / "transcript.jsonl"
    agent = Agent(
        "scripted",
        api=api,
        sandbox=sandbox,
        transcript=str(transcript),
        on_event=lambda kind, data: heard.append(kind),
        budget=Budget(prices=(1.0, 10.0)),
    )
    result = agent.run("What is the product?")
    assert result.ok and result.answer == "It is 42.", result
    assert (result.steps, result.input_tokens, result.output_tokens) == (4, 40, 20)
    assert result.cost == pytest.approx(0.00024)
    last = strings(server.asked[3])
    assert "exit code: 3" in last and "there is no tool" in last
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert [line["type"] for line in lines].count("call") == 4 and lines[-1]["type"] == "end"
    assert heard.count("result") == 4
    assert transcript.stat().st_mode & 0o777 == 0o600
    assert len(sandbox.contexts.list()) == contexts, "its live Python was left behind"


def test_async(model: Model, client: Client, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")
    server = model(Refusal(429), *SCRIPT)
    point(monkeypatch, server)

    endpoint = client._transport.located()

    async def run() -> Any:
        async with AsyncClient(endpoint.url, endpoint.token) as own:
            made = await AsyncSandbox.get(sandbox.id, client=own)
            return await AsyncAgent("scripted", api="anthropic", sandbox=made).run("What is the product?")

    assert asyncio.run(run()).answer == "It is 42."
    assert len(server.asked) == 5


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_streaming(model: Model, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    server = model(*SCRIPT[:2], Drop("It might be"), *SCRIPT[2:])
    point(monkeypatch, server)
    events = list(Agent("scripted", api=api, sandbox=sandbox).stream("What is the product?"))
    kinds = [event.kind for event in events]
    assert kinds[0] == "start" and kinds[-1] == "end" and kinds.count("retry") == 1, kinds
    assert kinds.count("call") == kinds.count("result") == 4
    result = events[-1].result
    assert result is not None and result.ok and result.answer == "It is 42.", result
    assert (result.steps, result.input_tokens, result.output_tokens) == (4, 40, 20)
    pieces = [event.text for event in events[kinds.index("retry") :] if event.kind == "text"]
    assert len(pieces) == 2 and "".join(pieces) == "It is 42.", pieces
    assert all(body["stream"] for body in server.asked) and len(server.asked) == 5
    assert "exit code: 3" in strings(server.asked[4]) and "there is no tool" in strings(server.asked[4])


def test_text_goes_to_a_callback_as_well(model: Model, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    point(monkeypatch, model("One two three."))
    said = []

    def hear(kind: str, data: Dict[str, Any]) -> None:
        if kind == "text":
            said.append(data["text"])

    result = Agent("scripted", api="chat", sandbox=sandbox, streamed=True, on_event=hear).run("Count.")
    assert result.answer == "".join(said) == "One two three." and len(said) == 2


def mending(body: Dict[str, Any], number: int) -> Turn:
    """Each attempt has another idea of how to mend ``add``."""
    said = strings(body)
    attempt = int(re.findall(r"attempt (\d) of \d", said)[0])
    if "tool_result" in said:
        return f"Attempt {attempt} is done."
    return [("run_command", {"command": f"sed -i 's/a - b/a {'_*+'[attempt]} b/' /workspace/add.py"})]


def test_best_of(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("anthropic")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
    server = ModelServer(mending)
    point(monkeypatch, server)
    transcript = tmp_path / "transcript.jsonl"
    agent = Agent("scripted", api="anthropic", sandbox=sandbox, transcript=str(transcript))
    write = "printf 'def add(a, b):\\n    return a - b\\n' >add.py"
    check = "python3 -c 'from add import add; assert add(2, 3) == 5'"
    found = agent.best_of(2, "Mend it.", check=check, setup=write)
    with found.sandbox as winner:
        assert found.ok and found.answer == "Attempt 2 is done.", found
        assert [(one.number, one.passed, one.exit_code) for one in found.attempts] == [(1, False, 1), (2, True, 0)]
        assert winner.files.read_text("/workspace/add.py").endswith("a + b\n")
        assert "2 ◀" in found.table() and "failed" in found.table()
        with pytest.raises(NotFoundError):
            Sandbox.get(found.attempts[0].sandbox.id, client=sandbox.client)
    assert sandbox.files.read_text("/workspace/add.py").endswith("a - b\n"), "the parent is as it was"
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert {line["attempt"]: line["passed"] for line in lines if line["type"] == "check"} == {1: False, 2: True}
    server.close()


def test_the_best_of_two_by_a_function(client: Client, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")

    def script(body: Dict[str, Any], number: int) -> Turn:
        return Refusal(400) if "attempt 1 of 2" in strings(body) else "Done."

    server = ModelServer(script)
    point(monkeypatch, server)
    endpoint = client._transport.located()

    async def score(fork: AsyncSandbox) -> float:
        return float((await fork.exec("echo 7")).stdout)

    async def run() -> Any:
        async with AsyncClient(endpoint.url, endpoint.token) as own:
            parent = await AsyncSandbox.get(sandbox.id, client=own)
            found = await AsyncAgent("scripted", api="anthropic", sandbox=parent).best_of(2, "Try.", check=score)
            await found.sandbox.close()
            return found

    found = asyncio.run(run())
    server.close()
    assert found.ok and found.best.number == 2 and found.best.score == 7.0
    assert found.attempts[0].error is not None and not found.attempts[0].passed


def test_the_number_that_ends_the_output_is_the_score() -> None:
    assert score_of("a\nscore: 3.5\n\n") == 3.5
    assert [score_of(text) for text in ("", "passed", "nan", "inf")] == [None] * 4


def test_budgets_and_loops_end(model: Model, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")

    def endless(body: Dict[str, Any], number: int) -> Turn:
        return [("run_command", {"command": "true"})]

    def counting(body: Dict[str, Any], number: int) -> Turn:
        return [("run_command", {"command": f"echo {number}"})]

    for script, budget, ended_by in [
        (endless, Budget(), "repeats"),
        (counting, Budget(steps=3), "steps"),
        (counting, Budget(tokens=60), "tokens"),
        (counting, Budget(cost=0.001, prices=(10, 20)), "money"),
        (lambda body, number: "", Budget(), "empty"),
    ]:
        server = ModelServer(script)
        point(monkeypatch, server)
        result = Agent("scripted", api="anthropic", sandbox=sandbox, budget=budget).run("Go on.")
        server.close()
        assert result.ended_by == ended_by and not result.ok, result
        assert budget.tokens is None or result.input_tokens + result.output_tokens <= budget.tokens
        assert budget.cost is None or (result.cost or 0) <= budget.cost


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Agent("scripted")
    with pytest.raises(ConfigError, match="ANTHROPIC_MODEL"):
        Agent(api="anthropic")
    with pytest.raises(ConfigError, match="there is no API"):
        Agent("scripted", api="telepathy")
    with pytest.raises(ValueError, match="prices"):
        Budget(cost=1.0)


def test_the_next_answer_is_never_longer_than_what_is_left() -> None:
    spent = Spent(Budget(tokens=100))
    spent.add(20, 10)
    assert spent.longest_answer() == 40 and spent.over() is None
    spent.add(30, 30)
    assert spent.over() == "tokens"
