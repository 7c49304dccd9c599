"""Each framework, unmodified from PyPI, with a scripted model and a real sandbox."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Callable

import pytest
from model_server import ModelServer, strings

from sandling import AsyncClient, AsyncSandbox, Client, Sandbox
from sandling.tools import AsyncSandboxTools, SandboxTools

Model = Callable[..., ModelServer]

#: Writes a file, reads it with a command, gets something wrong, and answers.
SCRIPT = (
    [("write_file", {"path": "/workspace/n.txt", "content": "6 7"})],
    [("run_code", {"code": "a, b = map(int, open('/workspace/n.txt').read().split())\na * b"})],
    [("run_command", {"command": "cat /nowhere; exit 3"}), ("run_code", {"code": "a + b"})],
    "It is 42.",
)


def check(server: ModelServer) -> None:
    """Checks that the model saw the results of its calls."""
    assert len(server.requests) == 4
    assert "wrote 3 bytes to /workspace/n.txt" in strings(server.requests[1])
    assert "result:\\\\n42" in strings(server.requests[2]) or "result:\\n42" in strings(server.requests[2])
    last = strings(server.requests[3])
    assert "exit code: 3" in last and "No such file or directory" in last
    assert "result:\\\\n13" in last or "result:\\n13" in last


def test_anthropic(model: Model, sandbox: Sandbox) -> None:
    anthropic = pytest.importorskip("anthropic")
    server = model(*SCRIPT)
    client = anthropic.Anthropic(base_url=server.url, max_retries=0)
    tools = SandboxTools(sandbox)
    messages: Any = [{"role": "user", "content": "What is the product?"}]
    while True:
        answer = client.messages.create(model="scripted", max_tokens=100, tools=tools.anthropic(), messages=messages)
        results = tools.answer_anthropic(answer)
        if not results:
            break
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    assert answer.content[0].text == "It is 42."
    check(server)
    assert [block["tool_use_id"] for block in server.requests[3]["messages"][-1]["content"]] == ["call_3_0", "call_3_1"]
    assert {tool["name"] for tool in server.requests[0]["tools"]} >= {"run_code", "run_command", "read_file"}


def test_anthropic_is_shown_pictures(model: Model, sandbox: Sandbox) -> None:
    anthropic = pytest.importorskip("anthropic")
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    write = f"import base64\nopen('/tmp/dot.png', 'wb').write(base64.b64decode('{png}'))"
    server = model([("run_code", {"code": write})], [("read_file", {"path": "/tmp/dot.png"})], "A dot.")
    client = anthropic.Anthropic(base_url=server.url, max_retries=0)
    tools = SandboxTools(sandbox)
    messages: Any = [{"role": "user", "content": "Look."}]
    for _ in range(2):
        answer = client.messages.create(model="scripted", max_tokens=100, tools=tools.anthropic(), messages=messages)
        results = tools.answer_anthropic(answer)
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    client.messages.create(model="scripted", max_tokens=100, tools=tools.anthropic(), messages=messages)
    shown = server.requests[2]["messages"][-1]["content"][0]["content"][1]
    assert shown == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}


def test_openai_chat_completions(model: Model, sandbox: Sandbox) -> None:
    openai = pytest.importorskip("openai")
    server = model(*SCRIPT)
    client = openai.OpenAI(base_url=f"{server.url}/v1", max_retries=0)
    tools = SandboxTools(sandbox)
    messages: Any = [{"role": "user", "content": "What is the product?"}]
    while True:
        answer = client.chat.completions.create(model="scripted", tools=tools.openai(), messages=messages)
        message = answer.choices[0].message
        messages += [message, *tools.answer_openai(message)]
        if not message.tool_calls:
            break
    assert message.content == "It is 42."
    check(server)


def test_openai_responses(model: Model, sandbox: Sandbox) -> None:
    openai = pytest.importorskip("openai")
    server = model(*SCRIPT)
    client = openai.OpenAI(base_url=f"{server.url}/v1", max_retries=0)
    tools = SandboxTools(sandbox)
    items: Any = [{"role": "user", "content": "What is the product?"}]
    while True:
        answer = client.responses.create(model="scripted", tools=tools.openai_responses(), input=items)
        results = tools.answer_openai_responses(answer)
        items += [*answer.output, *results]
        if not results:
            break
    assert answer.output_text == "It is 42."
    check(server)


def test_openai_calls_that_make_no_sense_are_answered(model: Model, sandbox: Sandbox) -> None:
    openai = pytest.importorskip("openai")
    nonsense = [("run_code", "{not json"), ("fly", "{}"), ("run_command", '{"cmd": "x"}'), ("read_file", '{"path": 1}')]
    server = model(nonsense, "Sorry.")
    client = openai.OpenAI(base_url=f"{server.url}/v1", max_retries=0)
    tools = SandboxTools(sandbox)
    first = client.chat.completions.create(model="scripted", tools=tools.openai(), messages=[])
    answers = [message["content"] for message in tools.answer_openai(first.choices[0].message)]
    assert [answer.partition(":")[0] for answer in answers] == ["error"] * 4
    assert "not valid JSON" in answers[0] and "there is no tool 'fly'" in answers[1]
    assert "'command' is missing" in answers[2] and "must be a string" in answers[3]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_langgraph(model: Model, sandbox: Sandbox, client: Client, colour: str) -> None:
    agents = pytest.importorskip("langchain.agents")
    models = pytest.importorskip("langchain_openai")
    server = model(*SCRIPT)
    llm = models.ChatOpenAI(base_url=f"{server.url}/v1", model="scripted", max_retries=0)
    asked = {"messages": [("user", "What is the product?")]}
    if colour == "sync":
        result = agents.create_agent(llm, SandboxTools(sandbox).langchain()).invoke(asked)
    else:
        result = with_async(client, sandbox, lambda tools: agents.create_agent(llm, tools.langchain()).ainvoke(asked))
    assert result["messages"][-1].content == "It is 42."
    check(server)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_langgraph_runs_the_calls_of_a_turn_at_once(
    model: Model, sandbox: Sandbox, client: Client, colour: str
) -> None:
    agents = pytest.importorskip("langchain.agents")
    models = pytest.importorskip("langchain_openai")
    turn = [("run_code", {"code": f"import time; time.sleep(0.3); {name} = {value}"}) for name, value in ("a6", "b7")]
    server = model(turn, [("run_code", {"code": "a * b"})], "It is 42.")
    llm = models.ChatOpenAI(base_url=f"{server.url}/v1", model="scripted", max_retries=0)
    asked = {"messages": [("user", "What is the product?")]}
    if colour == "sync":
        agents.create_agent(llm, SandboxTools(sandbox).langchain()).invoke(asked)
    else:
        with_async(client, sandbox, lambda tools: agents.create_agent(llm, tools.langchain()).ainvoke(asked))
    assert re.search(r"result:\\+n42", strings(server.requests[2]))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_openai_agents(model: Model, sandbox: Sandbox, client: Client, colour: str) -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")
    server = model(*SCRIPT)

    async def run(tools: Any) -> Any:
        llm = agents.OpenAIResponsesModel(
            model="scripted", openai_client=openai.AsyncOpenAI(base_url=f"{server.url}/v1", max_retries=0)
        )
        agent = agents.Agent(name="a", model=llm, tools=tools.openai_agents())
        settings = agents.RunConfig(tracing_disabled=True)
        return await agents.Runner.run(agent, "What is the product?", run_config=settings)

    result = asyncio.run(run(SandboxTools(sandbox))) if colour == "sync" else with_async(client, sandbox, run)
    assert result.final_output == "It is 42."
    check(server)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_pydantic_ai(model: Model, sandbox: Sandbox, client: Client, colour: str) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    server = model(*SCRIPT)

    async def run(tools: Any) -> Any:
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="unused")
        agent = pydantic_ai.Agent(OpenAIChatModel("scripted", provider=provider), tools=tools.pydantic_ai())
        return await agent.run("What is the product?")

    result = asyncio.run(run(SandboxTools(sandbox))) if colour == "sync" else with_async(client, sandbox, run)
    assert result.output == "It is 42."
    check(server)


def with_async(client: Client, sandbox: Sandbox, work: Callable[[AsyncSandboxTools], Any]) -> Any:
    """Runs the work with the async tools on the same sandbox."""
    endpoint = client._transport.located()

    async def run() -> Any:
        async with AsyncClient(endpoint.url, endpoint.token) as other:
            return await work(AsyncSandboxTools(await AsyncSandbox.get(sandbox.id, client=other)))

    return asyncio.run(run())


def test_what_only_the_developer_can_mend_is_raised(client: Client) -> None:
    from sandling import NotFoundError

    with Sandbox.create("base", ttl_seconds=300, client=client) as brief:
        tools = SandboxTools(brief)
    with pytest.raises(NotFoundError):
        tools.call("run_command", {"command": "true"})


def test_deadlines_long_outputs_and_the_audit(sandbox: Sandbox) -> None:
    from sandling import AuditLog

    records: Any = []
    tools = SandboxTools(sandbox, timeout_seconds=2, max_output=100, audit=AuditLog(records.append), actor="ada")
    late = tools.call("run_command", {"command": "echo so far; sleep 60", "timeout_seconds": 600})
    assert late.is_error and "so far" in late.text and "command timeout after 2s" in late.text
    long = tools.call("run_code", {"code": "print('x' * 1000)"})
    assert "[... 901 characters cut here ...]" in long.text and len(long.text) < 300
    assert [(record.action, record.outcome, record.actor) for record in records] == [
        ("run_command", "timeout", "ada"),
        ("run_code", "ok", "ada"),
    ]
    assert records[1].output["stdout"] == "x" * 1000 + "\n"
    assert json.dumps(records[1].input) == '{"arguments": {"code": "print(\'x\' * 1000)"}}'
