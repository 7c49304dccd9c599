"""Both clients against a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any, List

import pytest
from colour import Colour, settle
from fake_server import Answer, FakeServer, Request

from sandling import (
    CommandFailed,
    ConflictError,
    CreateCancelled,
    ExecInterrupted,
    ExploreError,
    LimitError,
    SandboxTimeout,
    ServerError,
    TemplateBuildError,
)
from sandling import ConnectionError as LostConnection

BOX = {"id": "box", "template": "base", "status": "running", "persistent": False}
FULL = Answer(503, {"error": "no room", "code": "no_capacity"}, {"retry-after": "0"})


def connect(colour: Colour, server: FakeServer, **more: Any) -> Any:
    return colour.Client(server.url, "key", **more)


def box(colour: Colour, server: FakeServer) -> Any:
    return colour.Sandbox._of(connect(colour, server), BOX)


def test_a_full_server_is_asked_again_with_the_same_key(colour: Colour, server: FakeServer) -> None:
    server.answers["POST", "/v1/sandboxes"] = [FULL, Answer(hang_up=True), Answer(201, BOX)]
    heard = []

    async def work() -> Any:
        client = connect(colour, server, on_create_retry=heard.append)
        return await settle(client.sandboxes.create("base", ttl_seconds=9))

    assert colour.run(work).id == "box"
    assert [event.error.code for event in heard] == ["no_capacity"]
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert [request.body for request in server.requests] == [{"template": "base", "ttl_seconds": 9}] * 3
    assert server.requests[0].headers["authorization"] == "Bearer key"


def test_an_error_of_code_that_a_create_ran_comes_from_first_run(colour: Colour, server: FakeServer) -> None:
    error = {"error": "too slow", "code": "command_timeout", "status": 504, "stdout": "x"}
    server.answers["POST", "/v1/sandboxes"] = Answer(201, {**BOX, "run": {"error": error}})

    async def work() -> Any:
        sandboxes = connect(colour, server).sandboxes
        await settle(sandboxes.create("base", run="1 + 1"))
        return await settle(sandboxes.create("base", run={"code": "1", "language": "node", "timeout_seconds": 5}))

    sandbox = colour.run(work)
    assert sandbox.id == "box"
    with pytest.raises(SandboxTimeout) as raised:
        sandbox.first_run()
    assert (raised.value.status, raised.value.stdout) == (504, "x")
    runs = [request.body["run"] for request in server.requests]
    assert runs == [{"code": "1 + 1"}, {"code": "1", "language": "node", "timeout_seconds": 5}]
    with pytest.raises(ValueError, match="without code"):
        box(colour, server).first_run()


def test_a_quota_is_not_waited_for(colour: Colour, server: FakeServer) -> None:
    server.answers["POST", "/v1/sandboxes"] = Answer(429, {"error": "max sandboxes reached", "code": "quota"})

    async def work() -> None:
        await settle(connect(colour, server).sandboxes.create("base"))

    with pytest.raises(LimitError, match="max sandboxes reached"):
        colour.run(work)
    assert len(server.requests) == 1


def test_waiting_for_room_can_be_cancelled(colour: Colour, server: FakeServer) -> None:
    refusal = Answer(503, {"error": "no room"}, {"retry-after": "30"})
    server.answers["POST", "/v1/sandboxes"] = refusal
    cancel = threading.Event()
    cancel.set()

    async def work() -> None:
        await settle(connect(colour, server).sandboxes.create("base", cancel=cancel))

    with pytest.raises(CreateCancelled) as raised:
        colour.run(work)
    assert raised.value.__cause__.status == 503  # type: ignore[union-attr]


def test_a_command_is_never_sent_twice(colour: Colour, server: FakeServer) -> None:
    server.answers["POST", "/v1/sandboxes/box/exec"] = Answer(hang_up=True)

    async def work() -> None:
        await settle(box(colour, server).exec("rm -r /x"))

    with pytest.raises(LostConnection):
        colour.run(work)
    assert len(server.requests) == 1


def stream_of(*events: str) -> Answer:
    return Answer(200, "".join(events).encode(), {"content-type": "text/event-stream; charset=utf-8"})


OUT = 'event: stdout\ndata: {"chunk":"so far"}\n\n'


def server_error(error: str, **more: Any) -> str:
    return f"event: error\ndata: {json.dumps({'error': error, **more})}\n\n"


@pytest.mark.parametrize(
    ("events", "kind", "facts"),
    [
        ([OUT], ExecInterrupted, (None, "interrupted")),
        ([OUT, server_error("the guest died", code="guest_died")], ServerError, (500, "guest_died")),
        ([OUT, server_error("paused", code="sandbox_paused", status=409)], ConflictError, (409, "sandbox_paused")),
        (
            [
                OUT,
                server_error("command timeout after 1s"),
                'event: exit\ndata: {"exit_code":137,"reason":"timeout"}\n\n',
            ],
            SandboxTimeout,
            (504, "command_timeout"),
        ),
    ],
)
def test_a_stream_that_ends_badly_keeps_what_was_printed(
    colour: Colour, server: FakeServer, events: Any, kind: Any, facts: Any
) -> None:
    server.answers["POST", "/v1/sandboxes/box/exec/stream"] = stream_of(*events)

    async def work() -> None:
        await settle(box(colour, server).exec_stream("x"))

    with pytest.raises(kind) as raised:
        colour.run(work)
    error = raised.value
    assert (getattr(error, "stdout", None) or error.details["stdout"]) == "so far"
    assert (error.status, error.code) == facts and error.request_id == "abc123"


def test_a_connection_that_drops_while_output_is_followed_loses_nothing_of_it(
    colour: Colour, server: FakeServer
) -> None:
    half = stream_of('event: start\ndata: {"id":"job","pid":7}\n\n', OUT)
    half.breaks_off = True
    server.answers["POST", "/v1/sandboxes/box/exec/stream"] = [half, Answer(hang_up=True)]
    server.answers["GET", "/v1/sandboxes/box/execs/job/output?from=0"] = half

    async def work() -> None:
        sandbox = box(colour, server)
        for stream in (sandbox.stream("x"), sandbox.commands.get("job").stream()):
            with pytest.raises(ExecInterrupted) as raised:
                await settle(stream.wait())
            error = raised.value
            assert (error.stdout, error.stderr, error.id) == ("so far", "", "job")
            assert (error.code, error.request_id) == ("interrupted", "abc123")
            assert isinstance(error.__cause__, LostConnection)
        with pytest.raises(LostConnection):
            await settle(sandbox.exec_stream("never answered"))

    colour.run(work)


def test_a_deadline_of_a_command_by_itself_has_all_facts(colour: Colour, server: FakeServer) -> None:
    ended = {"id": "job", "stdout": "so far", "stderr": "", "exit_code": 137, "reason": "timeout", "duration_ms": 1000}
    server.answers["GET", "/v1/sandboxes/box/execs/job/result?wait=true"] = Answer(200, ended)

    async def work() -> None:
        await settle(box(colour, server).commands.get("job").wait())

    with pytest.raises(SandboxTimeout) as raised:
        colour.run(work)
    error = raised.value
    assert (error.status, error.code, error.request_id) == (504, "command_timeout", "abc123")
    assert error.stdout == "so far"


def test_forks_snapshots_and_sleep_as_the_contract_has_them(colour: Colour, server: FakeServer) -> None:
    child = {"id": "c1", "status": "running", "metadata": {"fork_tree_id": "t"}}
    server.answers.update(
        {
            ("POST", "/v1/sandboxes/box/fork"): [
                Answer(201, {"sandbox": child}),
                Answer(201, {"children": [child]}),
                Answer(201, child),
            ],
            ("POST", "/v1/sandboxes/box/fork-tree"): Answer(201, {"children": [child, {**child, "id": "c2"}]}),
            ("POST", "/v1/sandboxes/c1/promote"): Answer(
                200, {"winner": "c1", "tree_id": "t", "deleted": ["c2"], "failures": {}}
            ),
            ("POST", "/v1/sandboxes/box/snapshots"): Answer(201, {"id": "snap"}),
            ("POST", "/v1/sandboxes/box/hibernate"): Answer(200, {"status": "hibernated"}),
            ("POST", "/v1/sandboxes/box/wake"): Answer(204),
            ("GET", "/v1/snapshots?sandbox_id=box"): Answer(200, {"snapshots": [{"id": "snap"}]}),
        }
    )

    async def work() -> None:
        parent = box(colour, server)
        for options in ({}, {"metadata": {"a": "b"}}, {"at": 0}):
            made = await settle(parent.fork(**options))
            assert (made.id, made.metadata["fork_parent_id"], made.template) == ("c1", "box", "base")
        first, second = await settle(parent.fork(2, metadata={"a": "b"}))
        assert (first.id, second.id) == ("c1", "c2")
        assert (await settle(first.promote(cleanup_siblings=True)))["deleted"] == ["c2"]
        assert await settle(parent.snapshot()) == "snap"
        assert (await settle(parent.client.snapshots.list(sandbox_id="box")))[0]["id"] == "snap"
        await settle(parent.hibernate())
        assert parent.status == "hibernated"
        await settle(parent.wake())
        assert parent.status == "running"

    colour.run(work)
    bodies = [request.body for request in server.requests]
    assert bodies[:4] == [None, {"metadata": {"a": "b"}}, {"at": 0}, {"count": 2, "metadata": {"a": "b"}}]
    assert bodies[4] == {"cleanup_siblings": True}


def test_a_volume_is_made_once_even_if_two_want_it(colour: Colour, server: FakeServer) -> None:
    missing, there = Answer(404, {"error": "no"}), Answer(200, {"name": "v", "size_mb": 2048})
    server.answers["GET", "/v1/volumes/v"] = [missing, there]
    server.answers["POST", "/v1/volumes"] = Answer(409, {"error": "there is one"})

    async def work() -> Any:
        return await settle(colour.Volume.get_or_create("v", 2, client=connect(colour, server)))

    volume = colour.run(work)
    assert (volume.name, volume.size_mb) == ("v", 2048)
    assert server.requests[1].body == {"name": "v", "size_mb": 2048}
    assert volume.mount("/data", read_only=True).to_wire() == {"name": "v", "mount": "/data", "read_only": True}


def test_a_volume_is_copied_to_the_node_that_is_named(colour: Colour, server: FakeServer) -> None:
    server.answers["GET", "/v1/volumes/v"] = Answer(200, {"name": "v", "size_mb": 16})
    server.answers["POST", "/v1/volumes/v/clone"] = Answer(201, {"name": "copy", "size_mb": 16})

    async def work() -> Any:
        volume = await settle(colour.Volume.get("v", client=connect(colour, server)))
        await settle(volume.clone("near"))
        return await settle(volume.clone("far", node="b"))

    assert colour.run(work).name == "copy"
    assert [request.body for request in server.requests[1:]] == [{"name": "near"}, {"name": "far", "node": "b"}]


def exec_answer(code: int) -> Answer:
    return Answer(200, {"stdout": "x\n", "stderr": "", "exit_code": code})


def explorable(server: FakeServer, codes: Any) -> None:
    ids = [f"c{number}" for number in range(len(codes))]
    children = [{"id": name, "status": "running", "metadata": {"fork_tree_id": "t"}} for name in ids]
    server.answers["POST", "/v1/sandboxes/box/fork-tree"] = Answer(201, {"children": children})
    for name, code in zip(ids, codes):
        server.answers["POST", f"/v1/sandboxes/{name}/exec"] = [exec_answer(0), exec_answer(code), exec_answer(0)]
        server.answers["DELETE", f"/v1/sandboxes/{name}"] = Answer(204)
        promoted = {"winner": name, "tree_id": "t", "deleted": [other for other in ids if other != name]}
        server.answers["POST", f"/v1/sandboxes/{name}/promote"] = Answer(200, promoted)


def test_an_exploration_keeps_the_best_and_ends_the_others(colour: Colour, server: FakeServer) -> None:
    explorable(server, [1, 0, 0])
    scores = {"c1": 1.0, "c2": 5.0}

    async def work() -> Any:
        return await settle(
            box(colour, server).explore(["a", "b", "c"], score_fn=lambda fork, _: scores.get(fork.id, 0))
        )

    result = colour.run(work)
    assert (result.winner.id, result.tree_id, sorted(result.reaped)) == ("c2", "t", ["c0", "c1"])
    assert [outcome.label for outcome in result.outcomes] == ["c", "b", "a"]
    assert result.winner_outcome.files_changed == ["x"]
    assert result.table().splitlines()[1].startswith("* c")
    forked = next(request for request in server.requests if request.path.endswith("fork-tree"))
    assert forked.body == {"count": 3, "metadata": {"explore": "1", "explore_ttl": "600"}}


def test_an_exploration_without_a_winner_leaves_nothing(colour: Colour, server: FakeServer) -> None:
    explorable(server, [1, 2])

    async def work() -> None:
        await settle(box(colour, server).explore(["a", "b"]))

    with pytest.raises(ExploreError, match=r"a: exit 1(, b: exit 2)?"):
        colour.run(work)
    assert sorted(request.path for request in server.requests if request.method == "DELETE") == [
        "/v1/sandboxes/c0",
        "/v1/sandboxes/c1",
    ]


def test_how_the_best_is_selected_is_checked_before_anything_is_forked(colour: Colour, server: FakeServer) -> None:
    async def work() -> None:
        await settle(box(colour, server).explore(["echo"], select="maximum"))

    with pytest.raises(ValueError, match="'max', 'min' or a function, not 'maximum'"):
        colour.run(work)
    assert server.requests == []


def test_what_a_candidates_function_raises_belongs_to_its_branch(colour: Colour, server: FakeServer) -> None:
    from sandling import Candidate

    explorable(server, [0, 0])

    def broken(_: Any) -> None:
        raise KeyError("mine")

    async def work() -> Any:
        candidates = [Candidate.call("broken", broken), Candidate.call("fine", lambda fork: fork.id)]
        return await settle(box(colour, server).explore(candidates, capture_files=False))

    result = colour.run(work)
    assert (result.winner_outcome.label, result.winner_outcome.value) == ("fine", "c1")
    assert result.outcomes[1].error == "'mine'"


@pytest.mark.parametrize("last", ["done", "failed"])
def test_a_template_is_built_and_its_log_is_heard(colour: Colour, server: FakeServer, last: str) -> None:
    build = {"id": "b", "name": "mine", "status": "queued"}
    server.answers.update(
        {
            ("POST", "/v1/templates/build"): Answer(202, build),
            ("GET", "/v1/templates/builds/b/logs?follow=1"): stream_of(
                "data:   indented\n\n", "data: second\n\n", "event: done\ndata: end\n\n"
            ),
            ("GET", "/v1/templates/builds/b"): Answer(200, {**build, "status": last, "error": "no such package"}),
            ("GET", "/v1/templates/mine"): Answer(200, {"name": "mine", "memory_mb": 512, "unheard_of": 1}),
        }
    )
    heard: List[str] = []

    async def work() -> Any:
        client = connect(colour, server)
        return await settle(
            colour.Template.build(
                "mine",
                packages=["ffmpeg"],
                pip=["six==1.16.0"],
                requirements="idna\n",
                memory_mb=512,
                on_log=heard.append,
                client=client,
            )
        )

    if last == "done":
        assert colour.run(work).memory_mb == 512
    else:
        with pytest.raises(TemplateBuildError, match="no such package"):
            colour.run(work)
    assert heard == ["  indented", "second"]
    python = {"pip": ["six==1.16.0"], "requirements": "idna\n"}
    assert server.requests[0].body == {"name": "mine", "packages": ["ffmpeg"], **python, "memory_mb": 512}


def test_a_lost_log_does_not_end_a_build(colour: Colour, server: FakeServer) -> None:
    build = {"id": "b", "name": "mine", "status": "queued"}
    server.answers.update(
        {
            ("POST", "/v1/templates/build"): Answer(202, build),
            ("GET", "/v1/templates/builds/b/logs?follow=1"): Answer(
                200, b"data: first\n\n", {"content-type": "text/event-stream"}, breaks_off=True
            ),
            ("GET", "/v1/templates/builds/b"): Answer(200, {**build, "status": "done"}),
            ("GET", "/v1/templates/mine"): Answer(200, {"name": "mine"}),
        }
    )
    heard: List[str] = []

    async def work() -> Any:
        return await settle(colour.Template.build("mine", on_log=heard.append, client=connect(colour, server)))

    assert colour.run(work).name == "mine"
    assert heard == ["first"]


def test_changes_that_are_made_at_once_all_hold(colour: Colour, server: FakeServer) -> None:
    allowed: List[str] = []

    def changed(request: Request) -> Answer:
        if request.method == "PUT":
            allowed[:] = request.body["allow"]
        rest = {"tls": "sealed", "limits": {}, "secrets": [], "counts": {}}
        answer = Answer(200, {"mode": "allow", "allow": [*allowed], **rest})
        if request.method == "GET":
            time.sleep(0.05)
        return answer

    server.answers["GET", "/v1/sandboxes/box/network"] = server.answers["PUT", "/v1/sandboxes/box/network"] = changed
    names = [f"{number}.example.com" for number in range(4)]

    async def work() -> None:
        allow = box(colour, server).network.allow
        if colour.name == "sync":
            allow = functools.partial(asyncio.to_thread, allow)
        await asyncio.gather(*(allow(name) for name in names))

    colour.run(work)
    assert sorted(allowed) == names


def test_what_is_refused_in_any_case_is_told_and_stays_when_more_is_allowed(colour: Colour, server: FakeServer) -> None:
    policy = {"mode": "open", "allow": [], "tls": "sealed"}
    refused = {**policy, "deny": ["192.0.2.0/24"]}
    rest = {"limits": {}, "secrets": [], "counts": {}}
    server.answers["GET", "/v1/sandboxes/box/network"] = Answer(200, {**refused, **rest, "bound": refused})
    server.answers["PUT", "/v1/sandboxes/box/network"] = Answer(200, {**policy, **rest, "bound": policy})
    server.answers["GET", "/v1/network"] = Answer(200, {"policy": refused, "limits": {}})
    server.answers["PUT", "/v1/network"] = Answer(200, {"policy": policy, "limits": {}})

    async def work() -> List[Any]:
        sandbox = box(colour, server)
        network, default = sandbox.network, sandbox.client.network
        told = [await settle(network.get()), await settle(network.allow("pypi")), await settle(network.set(deny=[]))]
        return [*told, await settle(default.get()), await settle(default.set(deny=["192.0.2.1"]))]

    is_there, after, _, default, changed = colour.run(work)
    assert is_there.deny == is_there.bound.deny == default.deny == ["192.0.2.0/24"]
    assert after.deny == after.bound.deny == changed.deny == []
    sent = [request.body for request in server.requests if request.method == "PUT"]
    assert sent == [{"mode": "open", "allow": ["pypi"]}, {"deny": []}, {"deny": ["192.0.2.1"]}]


def test_a_deadline_of_a_run_goes_by_two_names(colour: Colour, server: FakeServer) -> None:
    server.answers["POST", "*"] = Answer(200, {"exit_code": 0})

    async def work() -> None:
        sandbox = box(colour, server)
        for run in (sandbox.run, sandbox.commands.run):
            await settle(run("x", timeout=3))
            await settle(run("x", timeout_seconds=3))
            with pytest.raises(TypeError, match="give one of them"):
                await settle(run("x", timeout=3, timeout_seconds=4))

    colour.run(work)
    assert [request.body["timeout_seconds"] for request in server.requests] == [3] * 4


def test_a_server_that_is_not_there_is_named_without_its_password(colour: Colour) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]

        async def work() -> None:
            await settle(colour.Client(f"http://user:secret@127.0.0.1:{port}", "key").me())

        with pytest.raises(LostConnection, match=f"the server at http://127.0.0.1:{port} failed: .") as lost:
            colour.run(work)
    assert "secret" not in str(lost.value)


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_command_that_is_cancelled_is_ended_in_the_sandbox(server: FakeServer, is_followed: bool) -> None:
    began, ended = threading.Event(), threading.Event()
    signals: List[Request] = []

    def run(request: Request) -> Answer:
        began.set()
        ended.wait(10)
        return Answer(200, {"exit_code": 137})

    def signalled(request: Request) -> Answer:
        signals.append(request)
        if len(signals) == 1:
            return Answer(404, {"error": "there is no command", "code": "not_found"})
        ended.set()
        return Answer(204)

    def answer(request: Request) -> Answer:
        return signalled(request) if request.path.endswith("/signal") else run(request)

    server.answers["POST", "*"] = answer

    async def work(**options: Any) -> None:
        if is_followed:
            options["on_stdout"] = print
        task = asyncio.ensure_future(box(Colour("async"), server).exec("sleep 99", **options))
        await asyncio.to_thread(began.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert ended.is_set() and server.requests[0].body["cmd"] == "sleep 99"
    name = server.requests[0].body["id"]
    assert [request.path for request in signals] == [f"/v1/sandboxes/box/execs/{name}/signal"] * 2
    assert [request.body for request in signals] == [{"signal": "KILL"}] * 2
    # A command with an ID can be found again, so it continues.
    began.clear()
    ended.clear()
    asyncio.run(work(id="mine"))
    ended.set()
    assert len(signals) == 2 and server.requests[-1].body["id"] == "mine"


def test_a_file_is_not_emptied_by_mistake(colour: Colour, server: FakeServer) -> None:
    server.answers["PUT", "*"] = Answer(200, {"path": "/f", "bytes": 2})

    async def work() -> None:
        files = box(colour, server).files
        for bad in (None, 7, ["x"], {"a": 1}):
            with pytest.raises(TypeError, match=f"str or bytes, not {type(bad).__name__}"):
                await settle(files.write("/f", bad))
        for good in ("ab", b"ab", bytearray(b"ab"), memoryview(b"ab")):
            await settle(files.write("/f", good))

    colour.run(work)
    assert [request.body for request in server.requests] == [b"ab"] * 4


@pytest.mark.parametrize("by_proxy", [False, True])
def test_a_server_elsewhere_that_vanishes_is_noticed(
    colour: Colour, monkeypatch: pytest.MonkeyPatch, by_proxy: bool
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    far = FakeServer("127.0.0.2")
    url = "http://sandling.invalid" if by_proxy else far.url
    if by_proxy:
        monkeypatch.setenv("HTTP_PROXY", far.url)
    far.answers["GET", f"{url if by_proxy else ''}/v1/x"] = Answer(200, {})

    async def work() -> List[int]:
        opened = colour.Client(url, "key")._transport.stream("GET", "/v1/x")
        async with contextlib.AsyncExitStack() as stack:
            answer = await stack.enter_async_context(opened) if colour.name == "async" else stack.enter_context(opened)
            wire = answer.extensions["network_stream"].get_extra_info("socket")
            kept_alive = wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return [kept_alive, wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)]

    assert colour.run(work) == [1, 30]
    far.close()


def test_where_the_kernel_has_other_names_for_keep_alive_it_is_used_all_the_same() -> None:
    code = "import socket; del socket.TCP_KEEPIDLE; from sandling._async.transport import SOCKET_OPTIONS as options"
    printed = subprocess.check_output([sys.executable, "-c", f"{code}; print(options[1])"], text=True)
    assert printed == f"{(socket.IPPROTO_TCP, 0x10, 30)}\n"


def test_a_server_elsewhere_is_reached_the_same_way(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    # An address that the client does not know as local.
    far = FakeServer("127.0.0.2")
    try:
        far.answers["GET", "/v1/sandboxes/box/events?tail=1"] = Answer(200, {"events": []})
        far.answers["POST", "/v1/sandboxes/box/exec/stream"] = stream_of(OUT, 'event: exit\ndata: {"exit_code":0}\n\n')

        async def work() -> None:
            sandbox = box(colour, far)
            assert await settle(sandbox.events(1)) == []
            assert (await settle(sandbox.exec("x", on_stdout=lambda _: None))).stdout == "so far"

        colour.run(work)
        assert far.requests[0].headers["authorization"] == "Bearer key"
        assert far.requests[0].headers["host"] == far.url[len("http://") :]
    finally:
        far.close()


VERSION = json.dumps({"webSocketDebuggerUrl": "ws://localhost:9222/devtools/browser/b-1"})
PREVIEW = {"url": "", "path_url": "https://h:1/v1/p/t.s/", "token": "t.s", "id": "p", "port": 9222, "expires_at": ""}


def scripted_chromium(server: FakeServer, versions: List[str], exit_code: Any = None) -> None:
    """Chromium says one of ``versions`` each time it is asked, and ends with ``exit_code`` while it starts."""
    said = iter(versions)

    def exec(request: Request) -> Answer:
        if request.body.get("detached"):
            return Answer(200, {"id": "c", "pid": 1})
        version = next(said, "")
        return Answer(200, {"exit_code": 0 if version else 7, "stdout": version, "stderr": ""})

    status = "running" if exit_code is None else "exited"
    about = {"id": "c", "pid": 1, "command": "", "started_at": "", "output_bytes": 0, "status": status}
    server.answers["POST", "/v1/sandboxes/box/exec"] = exec
    server.answers["GET", "/v1/sandboxes/box/execs/c"] = Answer(200, {**about, "exit_code": exit_code})
    ended = {"exit_code": exit_code, "stdout": "", "stderr": "no display\n", "reason": "exited"}
    server.answers["GET", "/v1/sandboxes/box/execs/c/result?wait=true"] = Answer(200, ended)
    server.answers["POST", "/v1/sandboxes/box/preview-token"] = Answer(201, PREVIEW)


def starts_of_chromium(server: FakeServer) -> int:
    return sum("detached" in (request.body or {}) for request in server.requests)


@pytest.mark.parametrize(("versions", "starts"), [([VERSION], 0), (["", "", VERSION], 1)])
def test_a_browser_is_started_unless_it_runs(
    colour: Colour, server: FakeServer, versions: List[str], starts: int
) -> None:
    scripted_chromium(server, versions)

    async def work() -> str:
        return await settle(box(colour, server).browser.cdp_url(ttl_seconds=60))

    assert colour.run(work) == "wss://h:1/v1/p/t.s/devtools/browser/b-1"
    assert starts_of_chromium(server) == starts
    assert server.requests[-1].body == {"port": 9222, "ttl_seconds": 60}


def test_a_browser_that_cannot_start_is_an_error(colour: Colour, server: FakeServer) -> None:
    scripted_chromium(server, [], exit_code=1)

    async def work() -> None:
        await settle(box(colour, server).browser.cdp_url())

    with pytest.raises(CommandFailed, match="ended with 1 when it started: no display"):
        colour.run(work)


def test_a_browser_that_does_not_answer_is_an_error(colour: Colour, server: FakeServer) -> None:
    scripted_chromium(server, [])

    async def work() -> None:
        await settle(box(colour, server).browser.cdp_url(timeout_seconds=0))

    with pytest.raises(TimeoutError, match="did not open port 9222 within 0 s"):
        colour.run(work)
