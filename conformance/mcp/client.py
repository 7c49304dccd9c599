"""The official MCP client from PyPI against ``sandling mcp``, over stdio and over HTTP.

client.py SANDLING URL [stdio] [http]
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Awaitable, Callable

import httpx2
from home import home
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SANDLING, URL, *WANTED = sys.argv[1:]


def stdio(*more: str, environment: dict[str, str] | None = None) -> Client:
    arguments = ["mcp", "--template", "base", "--timeout", "60s", "--max-output", "2000", *more]
    return Client(StdioServerParameters(command=SANDLING, args=arguments, env=environment or dict(os.environ)))


@asynccontextmanager
async def http() -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {os.environ['SANDLING_TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as transport,
        Client(streamable_http_client(URL, http_client=transport)) as client,
    ):
        yield client


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return "".join(block.text for block in result.content if block.type == "text")


async def tools_are_listed(client: Client) -> None:
    listed = await client.list_tools()
    names = {tool.name for tool in listed.tools}
    wanted = {"run_code", "run_command", "read_file", "write_file", "list_files", "fork", "keep_fork", "preview"}
    assert wanted <= names, names
    assert (await client.list_resources()).resources == [], "there is no sandbox yet"


async def python_keeps_its_variables(client: Client) -> None:
    assert "exit code: 0" in await said(client, "run_code", code="numbers = [3, 1, 2]")
    assert "result:\n[1, 2, 3]" in await said(client, "run_code", code="sorted(numbers)")
    assert "NameError" in await said(client, "run_code", code="letters")
    assert "hello from bash" in await said(client, "run_code", code="echo hello from bash", language="bash")


async def exit_codes_are_always_there(client: Client) -> None:
    text = await said(client, "run_command", command="echo out; echo err >&2; exit 3")
    assert text == "exit code: 3\nstdout:\nout\n\nstderr:\nerr\n", text
    assert await said(client, "run_command", command="true") == "exit code: 0\n(nothing was printed)"


async def long_output_is_cut_in_the_middle(client: Client) -> None:
    text = await said(client, "run_command", command="echo first; seq 100000; echo last")
    assert "first" in text and "last" in text and "bytes cut here" in text and len(text) < 25_000, len(text)


async def a_deadline_keeps_what_was_printed(client: Client) -> None:
    result = await client.call_tool("run_command", {"command": "echo before; sleep 60", "timeout_seconds": 1})
    assert result.is_error and "before" in result.content[0].text, result
    text = await said(client, "run_code", code="print('before', flush=True)\nwhile True: pass", timeout_seconds=1)
    assert "deadline" in text and "before" in text, text


async def pictures_are_pictures(client: Client) -> None:
    code = f"import base64\nclass Dot:\n    def _repr_png_(self): return base64.b64decode('{PNG}')\nDot()"
    shown = (await client.call_tool("run_code", {"code": code})).content
    assert [block.mime_type for block in shown if block.type == "image"] == ["image/png"], shown
    write = f"open('/workspace/dot.png', 'wb').write(base64.b64decode('{PNG}'))"
    await client.call_tool("run_code", {"code": write})
    read = (await client.call_tool("read_file", {"path": "/workspace/dot.png"})).content
    assert read[1].type == "image" and read[1].data == PNG, read


async def files_are_resources(client: Client) -> None:
    assert "wrote 6 bytes" in await said(client, "write_file", path="/workspace/a b/ü.txt", content="hällo")
    assert await said(client, "read_file", path="/workspace/a b/ü.txt") == "hällo"
    assert "a b/" in await said(client, "list_files")
    listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
    uri = next(uri for uri in listed if uri.endswith(".txt"))
    contents = (await client.read_resource(uri)).contents[0]
    assert contents.text == "hällo", contents
    picture = (await client.read_resource("sandbox:///workspace/dot.png")).contents[0]
    assert base64.b64decode(picture.blob) == base64.b64decode(PNG)
    try:
        await client.read_resource("sandbox:///nowhere")
    except Exception as error:
        assert "no" in str(error).lower(), error
    else:
        raise AssertionError("a file that is not there was read")


async def forks_are_machines_of_their_own(client: Client) -> None:
    await client.call_tool("run_code", {"code": "colour = 'red'"})
    assert await said(client, "fork", count=2) == "forked: fork-1, fork-2"
    assert "'red'" in await said(client, "run_code", code="colour", sandbox="fork-1")
    await client.call_tool("run_code", {"code": "colour = 'blue'", "sandbox": "fork-1"})
    assert "'red'" in await said(client, "run_code", code="colour")
    assert "was ended" in await said(client, "drop_fork", fork="fork-2")
    assert "own sandbox now" in await said(client, "keep_fork", fork="fork-1")
    assert "'blue'" in await said(client, "run_code", code="colour")
    assert "there is no fork" in await said(client, "run_code", code="1", sandbox="fork-2")


async def what_was_done_can_be_undone(client: Client) -> None:
    await client.call_tool("write_file", {"path": "/workspace/kept.txt", "content": "one\n"})
    await client.call_tool("run_code", {"code": "colour = 'green'"})
    step = (await said(client, "checkpoint")).removeprefix("checkpoint ")
    assert (await said(client, "history")).startswith(f"{step}  ")
    await client.call_tool("run_command", {"command": "echo two >kept.txt"})
    patch = await said(client, "diff", **{"from": int(step)})
    assert "-one\n+two" in patch, patch
    await client.call_tool("run_code", {"code": "colour = 'black'"})
    assert f"at checkpoint {step}" in await said(client, "rewind", to=int(step))
    assert await said(client, "read_file", path="/workspace/kept.txt") == "one\n"
    assert "'green'" in await said(client, "run_code", code="colour")
    assert "error" in await said(client, "rewind", to=99999)


async def a_server_can_be_previewed(client: Client) -> None:
    await said(client, "run_command", command="mkdir -p /srv/w && echo it works >/srv/w/index.html")
    serve = "cd /srv/w && nohup python3 -m http.server 8000 >/dev/null 2>&1 &"
    await said(client, "run_command", command=serve)
    wait = "for i in $(seq 100); do curl -s localhost:8000 >/dev/null && exit 0; sleep 0.1; done; exit 1"
    assert "exit code: 0" in await said(client, "run_command", command=wait)
    link = await said(client, "preview", port=8000)
    # Browsers resolve names below localhost by themselves. Here the host goes into a header.
    host = link.split("/")[2]
    port = host.rpartition(":")[2]
    request = urllib.request.Request(link.replace(host, f"127.0.0.1:{port}"), headers={"Host": host})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
    page = await asyncio.to_thread(lambda: opener.open(request, timeout=30).read())
    assert b"it works" in page, page


async def long_calls_show_progress(client: Client) -> None:
    heard: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    command = "for i in 1 2 3; do echo line $i; sleep 1; done"
    await client.call_tool("run_command", {"command": command}, progress_callback=progress)
    assert any(message.startswith("line") for message in heard), heard
    heard.clear()
    code = "import time\nfor i in range(3):\n    print('cell', i, flush=True)\n    time.sleep(1)"
    await client.call_tool("run_code", {"code": code}, progress_callback=progress)
    assert any(message.startswith("cell") for message in heard), heard


async def too_much_to_see_is_counted_instead(client: Client) -> None:
    code = f"import base64\nclass Dot:\n    def _repr_png_(self): return base64.b64decode('{PNG}')\n"
    result = await client.call_tool("run_code", {"code": code + "for _ in range(30): display(Dot())"})
    assert len([block for block in result.content if block.type == "image"]) == 8, len(result.content)
    assert "22 more images are not shown" in result.content[0].text, result.content[0].text


async def cancelling_kills_the_command(client: Client) -> None:
    call = asyncio.create_task(client.call_tool("run_command", {"command": "exec sleep 4321"}))
    running = "pgrep -x sleep -a | grep -c 4321"
    await wait_for(client, running, "1")
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        pass
    await wait_for(client, running, "0")


async def cancelling_interrupts_code(client: Client) -> None:
    await client.call_tool("run_code", {"code": "kept = 5"})
    code = "import time\nopen('/tmp/began', 'w').close()\ntime.sleep(1000)"
    call = asyncio.create_task(client.call_tool("run_code", {"code": code}))
    await wait_for(client, "ls /tmp/began | wc -l", "1")
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        pass
    started = time.monotonic()
    text = await said(client, "run_code", code="kept * 2")
    assert "result:\n10" in text, text
    assert time.monotonic() - started < 30


async def wait_for(client: Client, command: str, wanted: str) -> None:
    deadline = time.monotonic() + 30
    while f"stdout:\n{wanted}\n" not in (text := await said(client, "run_command", command=command)):
        assert time.monotonic() < deadline, text
        await asyncio.sleep(0.2)


async def paths_start_in_the_working_directory(client: Client) -> None:
    await said(client, "write_file", path="sub/relative.txt", content="here")
    assert await said(client, "read_file", path="/workspace/sub/relative.txt") == "here"
    assert await said(client, "read_file", path="sub/relative.txt") == "here"
    assert "relative.txt" in await said(client, "list_files", path="sub")


async def nonsense_is_answered(client: Client) -> None:
    for tool, arguments, why in [
        ("run_command", {"cmd": "ls"}, "unknown field"),
        ("run_command", {}, "missing field"),
        ("run_code", {"code": 1}, "invalid type"),
        ("read_file", {"path": "/nowhere"}, "error:"),
        ("run_command", {"command": "true", "timeout_seconds": 0}, "more than 0"),
        ("run_code", {"code": "1", "timeout_seconds": -1}, "more than 0"),
        ("rewind", {"to": 10_000}, "no such checkpoint; "),
        ("read_file", {"path": "/dev/zero"}, "is a device, a pipe or a socket"),
        ("write_file", {"path": "/proc/x", "content": ""}, "error:"),
        ("fork", {"count": 99}, "a session can have"),
        ("keep_fork", {"fork": "fork-99"}, "there are none"),
        ("fly", {}, "there are run_code, "),
    ]:
        result = await client.call_tool(tool, arguments)
        assert result.is_error and why in result.content[0].text, (tool, arguments, result)


CASES: list[Callable[[Client], Awaitable[None]]] = [
    tools_are_listed,
    python_keeps_its_variables,
    exit_codes_are_always_there,
    long_output_is_cut_in_the_middle,
    a_deadline_keeps_what_was_printed,
    pictures_are_pictures,
    files_are_resources,
    what_was_done_can_be_undone,
    forks_are_machines_of_their_own,
    a_server_can_be_previewed,
    long_calls_show_progress,
    cancelling_kills_the_command,
    too_much_to_see_is_counted_instead,
    cancelling_interrupts_code,
    paths_start_in_the_working_directory,
    nonsense_is_answered,
]


async def every_step_can_be_undone() -> None:
    """With ``--checkpoints`` there is a checkpoint before each step."""
    async with stdio("--checkpoints") as client:
        await client.call_tool("write_file", {"path": "/workspace/kept.txt", "content": "one\n"})
        await client.call_tool("run_command", {"command": "echo two >kept.txt"})
        await client.call_tool("run_command", {"command": "rm kept.txt"})
        past = (await said(client, "history")).splitlines()
        assert any("before exec: echo two" in line for line in past), past
        step = next(int(line.split()[0]) for line in past if "rm kept.txt" in line)
        assert "-two" in await said(client, "diff", **{"from": step})
        assert f"at checkpoint {step}" in await said(client, "rewind", to=step)
        assert await said(client, "read_file", path="/workspace/kept.txt") == "two\n"


def sandboxes() -> set[str]:
    request = urllib.request.Request(os.environ["SANDLING_API"] + "/v1/sandboxes")
    request.add_header("Authorization", f"Bearer {os.environ['SANDLING_TOKEN']}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return {sandbox["id"] for sandbox in json.load(opener.open(request, timeout=30))}


def conversation(command: str) -> list[dict[str, Any]]:
    """The messages of a client that runs a command."""
    about = {"name": "conformance", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    call = {"name": "run_command", "arguments": {"command": command}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    return [{"jsonrpc": "2.0", **message} for message in messages]


async def signals_leave_nothing() -> None:
    """If it is stopped during a call, it ends its sandbox first."""
    for asked in (signal.SIGINT, signal.SIGTERM):
        before = await asyncio.to_thread(sandboxes)
        server = subprocess.Popen(
            [SANDLING, "mcp", "--template", "base"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for message in conversation("sleep 300"):
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
        deadline = time.monotonic() + 60
        while not await asyncio.to_thread(sandboxes) - before:
            assert time.monotonic() < deadline and server.poll() is None
            await asyncio.sleep(0.1)
        server.send_signal(asked)
        await asyncio.to_thread(server.wait, 60)
        assert not await asyncio.to_thread(sandboxes) - before, asked


async def strangers_are_turned_away() -> None:
    async with httpx2.AsyncClient() as stranger:
        for headers in [{}, {"Authorization": "Bearer wrong"}]:
            answer = await stranger.post(URL, json={}, headers=headers)
            assert answer.status_code == 401, answer


async def sessions_have_sandboxes_of_their_own() -> None:
    async with http() as one, http() as other:
        await one.call_tool("write_file", {"path": "/workspace/mine", "content": "1"})
        assert "(/workspace is empty)" in await said(other, "list_files")


@asynccontextmanager
async def session_with_a_sandbox(url: str) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A session of a passive client, and its sandbox. Leaving it sends nothing to the server."""
    before = await asyncio.to_thread(sandboxes)
    headers = {"Authorization": f"Bearer {os.environ['SANDLING_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as transport:
        transport.headers["Accept"] = "application/json, text/event-stream"
        for message in conversation("true"):
            answer = await transport.post(url, json=message)
            assert answer.is_success, answer.text
            if "mcp-session-id" in answer.headers:
                transport.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        (made,) = await asyncio.to_thread(sandboxes) - before
        yield transport, made


async def until_gone(sandbox: str) -> None:
    deadline = time.monotonic() + 60
    while sandbox in await asyncio.to_thread(sandboxes):
        assert time.monotonic() < deadline, "its sandbox is still there"
        await asyncio.sleep(0.2)


async def ending_a_session_ends_its_sandbox() -> None:
    async with session_with_a_sandbox(URL) as (transport, sandbox):
        assert (await transport.delete(URL)).status_code == 204
        await until_gone(sandbox)
        assert (await transport.post(URL, json=conversation("true")[2])).status_code == 404, "the session goes on"
    async with http() as other:
        assert "exit code: 0" in await said(other, "run_command", command="true"), "the server ended, too"


@asynccontextmanager
async def over_http(*more: str) -> AsyncIterator[str]:
    """Another server over HTTP, and its URL."""
    command = [SANDLING, "mcp", "--http", "127.0.0.1:0", "--template", "base", *more]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = ""
        while not (found := re.search(r"http://\S+/mcp", line)):
            line = await asyncio.to_thread(server.stdout.readline)
            assert line, "the server ended before it said where it listens"
        yield found[0]
        assert server.poll() is None
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait, 60)


async def the_sandbox_of_a_client_that_vanished_ends() -> None:
    async with over_http("--idle", "3s") as url:
        async with session_with_a_sandbox(url) as (_, sandbox):
            pass
        await until_gone(sandbox)


async def a_call_may_take_longer_than_a_client_may_be_idle() -> None:
    async with over_http("--idle", "5s", "--timeout", "60s") as url, session_with_a_sandbox(url) as (transport, _):
        call = conversation("sleep 12; echo awake")[2] | {"id": 3}
        answer = await transport.post(url, json=call)
        assert answer.is_success and "exit code: 0" in answer.text and "awake" in answer.text, answer.text


async def all_is_there(client: Client) -> None:
    for more, wanted in ({}, "own"), ({"sandbox": "fork-1"}, "fork"):
        text = await said(client, "read_file", path="/workspace/kept.txt", **more)
        assert text == wanted, text
    text = await said(client, "run_code", code="number + 1")
    assert "result:\n42" in text, text


async def sandboxes_outlive_their_server() -> None:
    """A session continues when the server is killed and restarted, at the same or another address, or by the client."""
    async with home(SANDLING) as own:
        address = own.serve()
        async with stdio(environment=own.environment) as client:
            await said(client, "write_file", path="/workspace/kept.txt", content="own")
            await said(client, "run_code", code="number = 41")
            assert await said(client, "fork") == "forked: fork-1"
            await said(client, "write_file", path="/workspace/kept.txt", content="fork", sandbox="fork-1")
            own.kill()
            assert own.serve(address) == address
            await all_is_there(client)
            own.kill()
            assert own.serve() != address
            resource = (await client.read_resource("sandbox:///workspace/kept.txt")).contents[0]
            assert resource.text == "own", resource
            await all_is_there(client)
            own.kill()
            await all_is_there(client)
            assert any(own.servers()) and len(own.sandboxes()) == 2
        assert own.sandboxes() == [], "the session has ended"


async def a_session_ends_its_sandboxes_without_its_server_too() -> None:
    async with home(SANDLING) as own:
        own.serve()
        command = [SANDLING, "mcp", "--template", "base"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        server = subprocess.Popen(command, env=own.environment, **pipes)
        for message in conversation("true"):
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
        while '"id":2' not in (line := await asyncio.to_thread(server.stdout.readline)):
            assert line, "it ended before it answered"
        assert len(own.sandboxes()) == 1
        own.kill()
        server.stdin.close()
        await asyncio.to_thread(server.wait, 120)
        assert own.sandboxes() == []


async def main() -> int:
    failed = 0
    for name, transport in [("stdio", stdio), ("http", http)]:
        if WANTED and name not in WANTED:
            continue
        async with transport() as client:
            for case in CASES if name == "stdio" else [*CASES[:3], *CASES[9:12]]:
                failed += await tried(f"{name}: {case.__name__}", case(client))
    if not WANTED or "stdio" in WANTED:
        failed += await tried("stdio: every_step_can_be_undone", every_step_can_be_undone())
        for case in (
            signals_leave_nothing,
            sandboxes_outlive_their_server,
            a_session_ends_its_sandboxes_without_its_server_too,
        ):
            failed += await tried(f"stdio: {case.__name__}", case())
    failed += await tried("http: strangers_are_turned_away", strangers_are_turned_away())
    for case in (
        sessions_have_sandboxes_of_their_own,
        ending_a_session_ends_its_sandbox,
        the_sandbox_of_a_client_that_vanished_ends,
        a_call_may_take_longer_than_a_client_may_be_idle,
    ):
        failed += await tried(f"http: {case.__name__}", case())
    return failed


async def tried(name: str, work: Awaitable[None]) -> int:
    try:
        await work
        print(f"passed   {name}", flush=True)
        return 0
    except Exception:
        traceback.print_exc()
        print(f"FAILED   {name}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main()) else 0)
