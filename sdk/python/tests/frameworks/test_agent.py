"""The agent loop, through the official SDKs, with a scripted model and a real sandbox."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from colour import Colour, settle
from fake_server import Answer, FakeServer
from model_server import Counted, Cut, Drop, Failed, Hang, ModelServer, Refusal, Strange, Turn, Uncounted, strings

from sandling import (
    Agent,
    AsyncAgent,
    AsyncClient,
    AsyncSandbox,
    Budget,
    Client,
    ConfigError,
    ModelError,
    NotFoundError,
    Sandbox,
)
from sandling.agents import Exhausted, Spent, score_of
from sandling.tools import SandboxTools

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
    last = strings(server.requests[3])
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
    assert len(server.requests) == 5


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
    assert result.steps == 4 and result.input_tokens > 500 and result.output_tokens > 20, "what broke off is charged"
    pieces = [event.text for event in events[kinds.index("retry") :] if event.kind == "text"]
    assert len(pieces) == 2 and "".join(pieces) == "It is 42.", pieces
    assert all(body["stream"] for body in server.requests) and len(server.requests) == 5
    assert "exit code: 3" in strings(server.requests[4]) and "there is no tool" in strings(server.requests[4])


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
    """Each attempt fixes ``add`` in another way."""
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
    assert (lines[-1]["type"], lines[-1]["attempt"]) == ("winner", 2)
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

    def verbose(body: Dict[str, Any], number: int) -> Turn:
        return Counted([("run_command", {"command": f"seq {number} 4000"})], len(strings(body)) // 4)

    for script, budget, ended_by in [
        (endless, Budget(), "repeats"),
        (counting, Budget(steps=3), "steps"),
        (verbose, Budget(tokens=30_000), "tokens"),
        (verbose, Budget(cost=0.3, prices=(10, 20)), "money"),
        (lambda body, number: "", Budget(), "empty"),
    ]:
        server = ModelServer(script)
        point(monkeypatch, server)
        result = Agent("scripted", api="anthropic", sandbox=sandbox, budget=budget).run("Go on.")
        server.close()
        assert result.ended_by == ended_by and not result.ok, result
        assert budget.tokens is None or result.input_tokens + result.output_tokens <= budget.tokens
        assert budget.cost is None or (result.cost or 0) <= budget.cost
        assert result.steps > 1, result


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_answers_that_break_off_are_charged(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, api: str, streamed: bool
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    server = model(Drop("x" * 6000), "There.")
    point(monkeypatch, server)
    result = perform(api=api, streamed=streamed)
    assert result.ok and len(server.requests) == 2 and result.steps == 1, result
    assert result.input_tokens > 500 and (not streamed or result.output_tokens > 500), result
    server = model(*[Drop("x" * 100)] * 6)
    point(monkeypatch, server)
    result = perform(api=api, streamed=streamed, budget=Budget(tokens=2_200))
    assert result.ended_by == "tokens" and 1 < len(server.requests) < 6, result
    assert 0 < result.input_tokens + result.output_tokens <= 2_200


APIS = ["anthropic", "chat", "responses"]


@pytest.fixture(params=["sync", "async"])
def perform(request: pytest.FixtureRequest, client: Client, sandbox: Sandbox) -> Callable[..., Any]:
    """Runs a task in the shared sandbox with either agent."""
    endpoint = client._transport.located()

    def run(**options: Any) -> Any:
        if request.param == "sync":
            return Agent("scripted", sandbox=sandbox, **options).run("Go on.")

        async def work() -> Any:
            async with AsyncClient(endpoint.url, endpoint.token) as own:
                made = await AsyncSandbox.get(sandbox.id, client=own)
                return await AsyncAgent("scripted", sandbox=made, **options).run("Go on.")

        return asyncio.run(work())

    return run


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("worse", [Hang(), Refusal(429, headers=(("retry-after", "3600"),))], ids=["hangs", "is busy"])
def test_the_time_holds(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, worse: Turn, streamed: bool
) -> None:
    pytest.importorskip("anthropic")
    for api in APIS[:2]:
        server = model([("run_command", {"command": "true"})], worse, "Too late.")
        point(monkeypatch, server)
        started = time.monotonic()
        result = perform(api=api, streamed=streamed, budget=Budget(seconds=3))
        assert result.ended_by == "time" and not result.ok and result.why == "the time limit was reached"
        assert result.steps == 1 and time.monotonic() - started < 6, result
        assert len(server.requests) == 2, "nothing is asked when there is no time"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_busy_server_is_asked_again(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, api: str, streamed: bool
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    server = model(Refusal(429), Refusal(503), "There.")
    point(monkeypatch, server)
    told = []
    result = perform(api=api, streamed=streamed, on_event=lambda kind, data: told.append((kind, data)))
    assert result.ok and result.answer == "There." and result.steps == 1 and len(server.requests) == 3
    assert [data["after_seconds"] for kind, data in told if kind == "retry"] == [0.0, 0.0]


def test_a_server_that_stays_busy_is_an_error(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    anthropic = pytest.importorskip("anthropic")
    server = model(*[Refusal(529)] * 9)
    point(monkeypatch, server)
    with pytest.raises(anthropic.APIStatusError):
        perform(api="anthropic")
    assert len(server.requests) == 6
    refused = model(Refusal(400), "Never.")
    point(monkeypatch, refused)
    with pytest.raises(anthropic.BadRequestError):
        perform(api="anthropic")
    assert len(refused.requests) == 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
def test_answers_that_are_not_whole(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, api: str, streamed: bool
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    # Anthropic's API sends arguments as text only while it streams.
    as_text = streamed or api != "anthropic"
    server = model([("run_command", '{"command": "echo' if as_text else {"x": 1})], Cut("It is"), "It is done.")
    point(monkeypatch, server)
    result = perform(api=api, streamed=streamed)
    assert result.ok and result.answer == "It is done." and result.steps == 3
    assert ("not valid JSON" if as_text else "is missing") in strings(server.requests[1])
    assert "cut off at the limit" in strings(server.requests[2])


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("streamed", [False, True])
def test_tokens_that_nobody_counts_are_estimated(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, api: str, streamed: bool
) -> None:
    pytest.importorskip("openai")
    calls = [Uncounted([("run_command", {"command": f"echo {number}"})]) for number in range(50)]
    server = model(*calls)
    point(monkeypatch, server)
    result = perform(api=api, streamed=streamed, budget=Budget(tokens=9_000))
    assert result.ended_by == "tokens" and 1 < result.steps < 50, result
    assert result.input_tokens > 100 and result.output_tokens > 5


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_says_that_it_failed_is_not_asked_again(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    pytest.importorskip("openai")
    server = model(Failed(), "Never.")
    point(monkeypatch, server)
    with pytest.raises(ModelError, match="no luck today"):
        perform(api="responses", streamed=streamed)
    assert len(server.requests) == 1


BOX = {"id": "box", "template": "base", "status": "running", "persistent": False}


@pytest.fixture
def pretend(colour: Colour, server: FakeServer) -> Callable[..., Any]:
    """Runs a task with either agent in a simulated sandbox."""
    server.answers["POST", "/v1/sandboxes/box/exec"] = Answer(200, {"exit_code": 0, "stdout": "", "stderr": ""})
    kind = AsyncAgent if colour.name == "async" else Agent

    def run(**options: Any) -> Any:
        async def work() -> Any:
            box = colour.Sandbox._of(colour.Client(server.url, "key"), BOX)
            return await settle(kind("scripted", sandbox=box, **options).run("Go on."))

        return colour.run(work)

    return run


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_calls_that_can_hardly_be_read_do_not_end_the_loop(
    model: Model,
    pretend: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    api: str,
    streamed: bool,
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    # Anthropic's API sends arguments as text only while it streams.
    as_text = streamed or api != "anthropic"
    calls = [
        ("run_command", {"command": "echo \ud800"}),
        ("run_command", {"command": "x", "timeout_seconds": float("nan")}),
        ("run_command", {"command": deep}),
        ("run_command", "[" * 100_000 if as_text else {"x": deep}),
        ("run_command", '{"command": "\udfff"}' if as_text else {"\udfff": 1}),
    ]
    server = model(calls, "There \ud83d.")
    point(monkeypatch, server)
    transcript = tmp_path / "transcript.jsonl"
    result = pretend(api=api, streamed=streamed, transcript=str(transcript))
    assert result.ok and result.answer == "There \ufffd.", result
    lines = [json.loads(line) for line in transcript.read_bytes().splitlines()]
    told = [line["text"] for line in lines if line["type"] == "result"]
    assert ["half a character" in told[0], "finite" in told[1], "must be a string" in told[2]] == [True] * 3, told
    assert len(told) == 5 and all(text.startswith("error: ") for text in told), told


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_a_transcript_has_arguments_as_objects(
    model: Model, pretend: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: str
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    broken = [] if api == "anthropic" else ["{", "[1]", '{"timeout_seconds": NaN}']
    calls: List[Any] = [("run_command", {"command": "true"}), *(("run_command", text) for text in broken)]
    point(monkeypatch, model(calls, "There."))
    transcript = tmp_path / "transcript.jsonl"
    assert pretend(api=api, transcript=str(transcript)).ok
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert [line["arguments"] for line in lines if line["type"] == "call"] == [{"command": "true"}, *broken]


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", {"choices": None, "error": {"message": "no luck today"}}),
        ("chat", {"choices": []}),
        ("chat", {"choices": [{"index": 0, "message": None}]}),
        ("anthropic", {"type": "error", "error": {"message": "no luck today"}}),
        ("responses", {"error": {"message": "no luck today"}}),
        ("chat", "no luck today"),
        ("anthropic", "no luck today"),
        ("responses", "no luck today"),
    ],
)
def test_a_success_without_an_answer_is_asked_for_again_and_charged(
    model: Model, pretend: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, api: str, body: Any
) -> None:
    pytest.importorskip("anthropic" if api == "anthropic" else "openai")
    monkeypatch.setattr("sandling._sync.model.sleep", lambda seconds: None)
    monkeypatch.setattr("sandling._async.model.sleep", lambda seconds: asyncio.sleep(0))
    server = model(Strange(body), "There.")
    point(monkeypatch, server)
    told: List[Any] = []
    result = pretend(api=api, on_event=lambda kind, data: told.append((kind, data)))
    assert result.ok and result.answer == "There." and result.steps == 1 and len(server.requests) == 2
    assert result.input_tokens > 500, "what was read for nothing is charged"
    why = [data["why"] for kind, data in told if kind == "retry"]
    assert len(why) == 1 and ("no luck today" in why[0]) == ("no luck today" in json.dumps(body)), why
    server = model(*[Strange(body)] * 6)
    point(monkeypatch, server)
    with pytest.raises(ModelError, match="sent no answer"):
        pretend(api=api)
    assert len(server.requests) == 6


def test_a_listener_gets_every_event(
    model: Model, pretend: Callable[..., Any], colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    heard: List[str] = []

    async def hear(kind: str, data: Dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(kind)

    plain = [lambda kind, data: heard.append(kind)]
    for listener in [*plain, hear] if colour.name == "async" else plain:
        heard.clear()
        point(monkeypatch, model([("run_command", {"command": "true"})], "There."))
        assert pretend(api="chat", streamed=True, on_event=listener).ok
        assert heard == ["start", "reply", "call", "result", "text", "text", "reply", "end"]


def test_fewer_forks_than_were_asked_for_are_mentioned(
    colour: Colour, server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("anthropic")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
    asked: List[str] = []

    def script(body: Dict[str, Any], number: int) -> Turn:
        asked.append(strings(body))
        return "Done."

    scripted = ModelServer(script)
    point(monkeypatch, scripted)
    children = [{"id": name, "status": "running"} for name in ("c1", "c2")]
    server.answers["POST", "/v1/sandboxes/box/fork-tree"] = Answer(201, {"children": children})
    for name in ("c1", "c2"):
        server.answers["PATCH", f"/v1/sandboxes/{name}/lifecycle"] = Answer(200, {"persistent": False})
        server.answers["DELETE", f"/v1/sandboxes/{name}"] = Answer(204)
        ran = {"exit_code": 0, "stdout": "", "stderr": ""}
        server.answers["POST", f"/v1/sandboxes/{name}/exec"] = Answer(200, ran)
    transcript = tmp_path / "transcript.jsonl"

    async def work() -> Any:
        box = colour.Sandbox._of(colour.Client(server.url, "key"), BOX)
        kind = AsyncAgent if colour.name == "async" else Agent
        agent = kind("scripted", api="anthropic", sandbox=box, transcript=str(transcript))
        return await settle(agent.best_of(5, "Try.", check="true"))

    found = colour.run(work)
    scripted.close()
    note = "5 forks were asked for and 2 made"
    assert len(found.attempts) == 2 and found.errors == [note] and found.table().splitlines()[-1] == note
    first = json.loads(transcript.read_text().splitlines()[0])
    assert (first["wanted"], first["made"]) == (5, 2)
    assert len(asked) == 2 and all("of 2, each" in said for said in asked)


def test_tools_work_in_the_working_directory(
    model: Model, perform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    server = model(
        [("write_file", {"path": "here/a.txt", "content": "relative"})],
        [("run_command", {"command": "pwd; cat here/a.txt; exit 4"})],
        [("run_code", {"code": "import os; print(os.getcwd(), open('here/a.txt').read())"})],
        [("run_code", {"code": "echo $PWD $(cat here/a.txt)", "language": "bash"})],
        [("run_code", {"code": "import time; time.sleep(60)", "timeout_seconds": 0.5})],
        [("read_file", {"path": "here/a.txt"}), ("list_files", {})],
        "Done.",
    )
    point(monkeypatch, server)
    transcript = tmp_path / "transcript.jsonl"
    assert perform(api="chat", transcript=str(transcript)).ok
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    texts = [line["text"] for line in results]
    assert [line["exit_code"] for line in results] == [None, 4, 0, 0, None, None, None]
    assert (
        "/workspace\nrelative" in texts[1] and "/workspace relative" in texts[2] and "/workspace relative" in texts[3]
    )
    assert results[4]["is_error"] and 0.5 <= results[4]["seconds"] < 20
    assert texts[5] == "relative" and "here/" in texts[6]
    assert lines[-1]["type"] == "end" and lines[-1]["why"] == "done" and lines[-1]["ended_by"] == "answer"
    assert all(line["calls"] > 0 for line in lines if line["type"] == "reply" and line is not lines[-2])
    limits = {name for name in server.requests[0] if name.startswith("max_")}
    assert limits == {"max_tokens"}, "only OpenAI's own server knows the newer name"


def test_a_cell_that_shows_very_much_is_cut(sandbox: Sandbox) -> None:
    tools = SandboxTools(sandbox, max_output=1000)
    output = tools.call("run_code", {"code": "for i in range(300): display('x' * 500)"})
    assert len(output.text) < 3000 and "280 more results are not shown" in output.text, output.text
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    show = f"class Dot:\n    def _repr_png_(self):\n        import base64\n        return base64.b64decode('{png}')\n"
    output = tools.call("run_code", {"code": show + "for i in range(12): display(Dot())"})
    assert len(output.images) == 8 and "4 more pictures are not shown" in output.text
    tools.close()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Agent("scripted")
    with pytest.raises(ConfigError, match="ANTHROPIC_MODEL"):
        Agent(api="anthropic")
    for api in ("anthropic", "chat", "responses"):
        pytest.importorskip("anthropic" if api == "anthropic" else "openai")
        with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY or OPENAI_API_KEY"):
            Agent("scripted", api=api)
    with pytest.raises(ConfigError, match="there is no API"):
        Agent("scripted", api="telepathy")
    with pytest.raises(ValueError, match="prices"):
        Budget(cost=1.0)


def test_the_next_answer_is_never_longer_than_what_is_left() -> None:
    spent = Spent(Budget(tokens=100))
    assert spent.next_answer(25) == 75
    spent.add(20, 10, estimated=40)
    assert spent.next_answer(40) == 40
    assert spent.next_answer(55) == 25, "15 more were added since"
    spent.lose(30, 5)
    assert spent.next_answer(40) == 5
    with pytest.raises(Exhausted, match="token budget"):
        spent.next_answer(45)
    spent = Spent(Budget(cost=0.001, prices=(1.0, 10.0)))
    assert spent.next_answer(100) in (89, 90)
    with pytest.raises(Exhausted, match="cost budget"):
        spent.next_answer(1000)
