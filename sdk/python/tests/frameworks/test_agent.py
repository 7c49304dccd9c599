"""The agent loop, through the official SDKs, with a scripted model and a real sandbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from model_server import ModelServer, Refusal, Turn, strings

from sandling import Agent, AsyncAgent, AsyncClient, AsyncSandbox, Budget, Client, ConfigError, Sandbox
from sandling.agents import Spent

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
