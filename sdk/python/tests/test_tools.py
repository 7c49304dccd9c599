"""The tools for a model against a scripted server."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
from colour import Colour, settle
from fake_server import Answer, FakeServer, Request

from sandling import Agent, AsyncAgent, AuditLog
from sandling.tools import AsyncSandboxTools, SandboxTools

BOX = {"id": "box", "template": "base", "status": "running", "persistent": False}
HERE = "/v1/sandboxes/box"


def tools_of(colour: Colour, server: FakeServer, **options: Any) -> Any:
    kind = AsyncSandboxTools if colour.name == "async" else SandboxTools
    return kind(colour.Sandbox._of(colour.Client(server.url, "key"), BOX), **options)


async def at_once(colour: Colour, tools: Any, *calls: Tuple[str, Dict[str, Any]]) -> List[str]:
    """Runs the calls of one turn in parallel, like frameworks, and returns the answers."""
    if colour.name == "async":
        outputs = await asyncio.gather(*(tools.call(*call) for call in calls))
    else:
        with ThreadPoolExecutor(len(calls)) as threads:
            outputs = list(threads.map(lambda call: tools.call(*call), calls))
    return [output.text for output in outputs]


class Interpreters:
    """Simulates live interpreters: each has its own variables and runs one cell at a time."""

    def __init__(self, server: FakeServer) -> None:
        self.variables: List[Dict[str, Any]] = []
        self._busy = threading.Lock()
        #: Called while a cell runs.
        self.meanwhile: Callable[[], Any] = lambda: threading.Event().wait(0.2)
        server.answers["POST", f"{HERE}/repl/sessions"] = self.make
        server.answers["POST", "*"] = self.run

    def make(self, request: Request) -> Answer:
        number = len(self.variables)
        self.variables.append({})
        self.meanwhile()
        return Answer(201, {"id": str(number), "language": "python"})

    def run(self, request: Request) -> Answer:
        if not self._busy.acquire(blocking=False):
            return Answer(409, {"error": "a cell runs already", "code": "busy"})
        try:
            self.meanwhile()
            variables = self.variables[int(request.path.split("/")[-2])]
            exec(request.body["code"], variables)
            return Answer(200, {"exit_code": 0, "stdout": str(variables.get("said", "")), "results": []})
        except NameError as error:
            return Answer(200, {"exit_code": 1, "error": str(error), "results": []})
        finally:
            self._busy.release()


def test_tools_of_the_other_client_are_named(colour: Colour, server: FakeServer) -> None:
    sandbox = colour.Sandbox._of(colour.Client(server.url, "key"), BOX)
    other, fits = (SandboxTools, "AsyncSandboxTools") if colour.name == "async" else (AsyncSandboxTools, "SandboxTools")
    with pytest.raises(TypeError, match=f"takes no {type(sandbox).__name__}; use {fits}$"):
        other(sandbox)
    agent, fits = (Agent, "AsyncAgent") if colour.name == "async" else (AsyncAgent, "Agent")
    with pytest.raises(TypeError, match=f"use {fits}$"):
        agent("m", api="chat", client=object(), sandbox=sandbox)


def test_cells_of_one_turn_run_one_after_the_other_in_one_interpreter(colour: Colour, server: FakeServer) -> None:
    interpreters = Interpreters(server)

    async def work() -> List[str]:
        tools = tools_of(colour, server)
        turn = [("run_code", {"code": "a = 6"}), ("run_code", {"code": "b = 7"})]
        said = await at_once(colour, tools, *turn)
        return [*said, (await settle(tools.call("run_code", {"code": "said = a * b"}))).text]

    said = colour.run(work)
    assert "stdout:\n42" in said[2] and all("exit code: 0" in text for text in said), said
    assert len(interpreters.variables) == 1


def test_commands_do_not_wait_for_cells(colour: Colour, server: FakeServer) -> None:
    ran = threading.Event()
    in_time: List[bool] = []

    def run(_: Request) -> Answer:
        ran.set()
        return Answer(200, {"exit_code": 0, "stdout": "", "stderr": ""})

    server.answers["POST", f"{HERE}/exec"] = run
    Interpreters(server).meanwhile = lambda: in_time.append(ran.wait(10))

    async def work() -> List[str]:
        turn = [("run_code", {"code": "a = 6"}), ("run_command", {"command": "true"})]
        return await at_once(colour, tools_of(colour, server), *turn)

    assert all("exit code: 0" in text for text in colour.run(work)) and all(in_time)


def test_code_keeps_its_variables_unless_it_is_fresh(colour: Colour, server: FakeServer) -> None:
    ran = {"exit_code": 0, "stdout": "", "stderr": "", "results": [{"text/plain": "2"}]}
    events = f'event: stdout\ndata: {{"chunk": ""}}\n\nevent: result\ndata: {json.dumps(ran)}\n\n'.encode()
    server.answers["POST", f"{HERE}/run-code/stream"] = Answer(200, events, {"content-type": "text/event-stream"})
    server.answers["POST", f"{HERE}/exec"] = Answer(200, {"exit_code": 3, "stdout": "", "stderr": "why\n"})

    async def work() -> Tuple[Any, Any, Any]:
        sandbox = colour.Sandbox._of(colour.Client(server.url, "key"), BOX)
        kept = await settle(sandbox.run_code("1 + 1", timeout_seconds=5, env={"A": "b"}))
        fresh = await settle(sandbox.run_code("1 + 1", fresh=True, cwd="/usr"))
        shell = await settle(sandbox.run_code("exit 3", "bash"))
        for option in ({"cwd": "/"}, {"user": "user"}, {"stdin": "x"}, {"id": "x"}, {"on_limit": "kill"}):
            with pytest.raises(TypeError, match="only with fresh=True"):
                await settle(sandbox.run_code("1", **option))
        return kept, fresh, shell

    kept, fresh, shell = colour.run(work)
    assert kept.text == "2" and kept.ok
    assert (fresh.exit_code, fresh.error, fresh.status, shell.exit_code) == (3, "why", "error", 3)
    sent = [(request.path.removeprefix(f"{HERE}/"), request.body) for request in server.requests]
    assert sent[0] == (
        "run-code/stream",
        {"code": "1 + 1", "language": "python", "timeout_seconds": 5, "env": {"A": "b"}},
    )
    assert sent[1][0] == "exec" and sent[1][1]["cwd"] == "/usr"
    assert sent[2][0] == "exec" and sent[2][1]["language"] == "bash"


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"command": "echo \\ud800"}', "half a character"),
        ({"command": "echo \udfff"}, "half a character"),
        ('{"command": "x", "timeout_seconds": NaN}', "finite"),
        ({"command": "x", "timeout_seconds": float("inf")}, "finite"),
        ('{"command": "x", "timeout_seconds": 1e999}', "finite"),
        ("[" * 100_000, "nested too deeply"),
        ('{"command":' * 100_000, "nested too deeply"),
        ({"command": nested(400)}, "must be a string"),
        ({"\ud800": 1, "command": "x"}, "there is no argument"),
    ],
)
def test_a_call_that_makes_no_sense_is_answered_and_written_down(
    colour: Colour, server: FakeServer, tmp_path: Path, arguments: Any, told: str
) -> None:
    async def work() -> Any:
        tools = tools_of(colour, server, audit=AuditLog(tmp_path / "audit"))
        return await settle(tools.call("run_command", arguments))

    output = colour.run(work)
    assert output.is_error and told in output.text, output
    output.text.encode()
    assert not server.requests
    assert json.loads((tmp_path / "audit").read_bytes())["outcome"] == "failed"


def test_a_model_is_told_of_a_full_disk(colour: Colour, server: FakeServer) -> None:
    server.answers["PUT", "*"] = Answer(507, {"error": "no space left on device", "code": "no_space"})

    async def work() -> Any:
        return await settle(tools_of(colour, server).call("write_file", {"path": "/f", "content": "x"}))

    output = colour.run(work)
    assert output.is_error and output.text == "error: no space left on device"


def test_characters_that_came_in_halves_are_put_together(colour: Colour, server: FakeServer) -> None:
    server.answers["POST", f"{HERE}/exec"] = Answer(200, {"exit_code": 0, "stdout": "", "stderr": ""})

    async def work() -> Any:
        return await settle(tools_of(colour, server).call("run_command", {"command": "echo \ud83d\ude00"}))

    assert not colour.run(work).is_error
    assert server.requests[0].body["cmd"] == "echo \U0001f600"


FILE = {"name": "f", "path": "/f", "is_dir": False, "mode": "f", "size": 5}


@pytest.mark.parametrize(
    ("about", "content", "told"),
    [
        ({}, Answer(200, b"hello"), "hello"),
        ({"is_dir": True, "mode": "d"}, None, "error: /f is a directory; list_files lists it"),
        ({"mode": "o", "size": 0}, None, "error: /f is a device, a pipe or a socket; look at it with run_command"),
        ({"size": 5 << 30}, None, f"error: /f has {5 << 30} bytes, which is too much; read a part with run_command"),
        (
            {"size": 0},
            Answer(200, b"x" * (1 << 20), endless=True),
            f"error: /f has more than {16 << 20} bytes, which is too much; read a part with run_command",
        ),
        (
            {},
            Answer(200, b"hel", breaks_off=True),
            "error: /f could not be read to its end; look at it with run_command",
        ),
    ],
)
def test_a_file_that_is_too_much_for_a_model_is_not_fetched(
    colour: Colour, server: FakeServer, about: Any, content: Any, told: str
) -> None:
    server.answers["GET", f"{HERE}/fs/stat?path=%2Ff"] = Answer(200, {**FILE, **about})
    server.answers["GET", f"{HERE}/fs?path=%2Ff"] = content

    async def work() -> Any:
        return await settle(tools_of(colour, server).call("read_file", {"path": "/f"}))

    output = colour.run(work)
    assert (output.text, output.is_error) == (told, told.startswith("error"))
    assert len(server.requests) == (2 if content else 1)


def test_a_file_that_does_not_come_is_not_waited_for(colour: Colour, server: FakeServer) -> None:
    over = threading.Event()

    def silent(_: Request) -> Answer:
        over.wait(30)
        return Answer(hang_up=True)

    server.answers["GET", f"{HERE}/fs/stat?path=%2Ff"] = Answer(200, {**FILE, "size": 0})
    server.answers["GET", f"{HERE}/fs?path=%2Ff"] = silent

    async def work() -> Any:
        return await settle(tools_of(colour, server, timeout_seconds=0.2).call("read_file", {"path": "/f"}))

    assert "could not be read to its end" in colour.run(work).text
    over.set()
