"""Pools, with a server that simulates machines."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any, List, Set
from unittest.mock import ANY

import pytest
from colour import Colour, settle
from fake_server import Answer, FakeServer, Request

from sandling import (
    AuditLog,
    AuditRecord,
    BadRequestError,
    CapacityError,
    ExecutionConfig,
    NotFoundError,
    SandboxTimeout,
)


class Machines:
    """Simulates a server and records which machines are alive."""

    def __init__(self, server: FakeServer) -> None:
        self.alive: Set[str] = set()
        self.made: List[Any] = []
        self.run_answer = Answer(200, {"stdout": "hi\n", "stderr": "", "exit_code": 0, "reason": "exited"})
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        server.answers.update(
            {("POST", "*"): self._post, ("PATCH", "*"): self._patch, ("DELETE", "*"): self._delete},
        )

    def _post(self, request: Request) -> Answer:
        if request.path != "/v1/sandboxes":
            return self.run_answer
        with self._lock:
            name = f"m{next(self._numbers)}"
            self.alive.add(name)
            self.made.append(request.body)
        return Answer(201, {"id": name, "template": "base", "status": "running"})

    def _patch(self, request: Request) -> Answer:
        if request.path.split("/")[3] not in self.alive:
            return Answer(404, {"error": "sandbox not found", "code": "not_found"})
        return Answer(200, {"ttl_seconds": 1, "idle_seconds": 0, "persistent": False})

    def _delete(self, request: Request) -> Answer:
        self.alive.discard(request.path.split("/")[3])
        return Answer(204)


def pool_of(colour: Colour, server: FakeServer, size: int = 2, **options: Any) -> Any:
    return colour.SandboxPool(size, "base", client=colour.Client(server.url, "key"), **options)


async def until_ready(pool: Any, count: int) -> None:
    import asyncio

    for _ in range(1000):
        if pool.status().ready == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} machines never were ready: {pool.status()}")


def test_everyone_gets_a_fresh_machine_and_nothing_is_left(colour: Colour, server: FakeServer) -> None:
    machines = Machines(server)
    seen: List[str] = []

    async def work() -> None:
        pool = pool_of(colour, server, 2, ttl_seconds=77, env={"A": "b"})
        await settle(pool.start())
        for _ in range(5):
            sandbox = await settle(pool.acquire(30))
            seen.append(sandbox.id)
            assert pool.status().busy == 1
            await settle(pool.release(sandbox))
            assert sandbox.id not in machines.alive
        await until_ready(pool, 2)
        status = pool.status()
        assert (status.size, status.busy, status.served, status.warming) == (2, 0, 5, 0)
        await settle(pool.close())

    colour.run(work)
    assert len(set(seen)) == 5
    assert machines.alive == set()
    assert machines.made[0] == {"template": "base", "ttl_seconds": 77, "env": {"A": "b"}}


def test_a_machine_whose_time_was_over_is_not_handed_out(colour: Colour, server: FakeServer) -> None:
    machines = Machines(server)

    async def work() -> str:
        pool = pool_of(colour, server, 1)
        await settle(pool.start())
        await until_ready(pool, 1)
        machines.alive.discard("m1")
        sandbox = await settle(pool.acquire(30))
        await settle(pool.release(sandbox))
        await settle(pool.close())
        assert pool.status().busy == 0
        return str(sandbox.id)

    assert colour.run(work) == "m2"


def test_no_more_than_allowed_are_out_at_once(colour: Colour, server: FakeServer) -> None:
    Machines(server)

    async def work() -> None:
        pool = pool_of(colour, server, 2, max_busy=1)
        await settle(pool.start())
        first = await settle(pool.acquire(30))
        with pytest.raises(CapacityError):
            await settle(pool.acquire(0.2))
        await settle(pool.release(first))
        await settle(pool.release(await settle(pool.acquire(30))))
        await settle(pool.close())

    colour.run(work)


def test_a_pool_that_cannot_work_says_why_and_one_without_stock_makes_on_demand(
    colour: Colour, server: FakeServer
) -> None:
    server.answers["POST", "/v1/sandboxes"] = Answer(400, {"error": "there is no such template", "code": "bad_request"})

    async def work() -> None:
        pool = pool_of(colour, server, 1)
        await settle(pool.start())
        with pytest.raises(BadRequestError, match="no such template"):
            await settle(pool.acquire())
        assert "no such template" in pool.status().last_error
        await settle(pool.close())
        del server.answers["POST", "/v1/sandboxes"]
        Machines(server)
        none_ready = pool_of(colour, server, 0)
        await settle(none_ready.start())
        assert none_ready.status().warming == 0
        await settle(none_ready.release(await settle(none_ready.acquire(30))))
        await settle(none_ready.close())

    colour.run(work)


def test_an_error_of_the_preparation_reaches_the_waiting_caller(colour: Colour, server: FakeServer) -> None:
    machines = Machines(server)

    def prepare(_: Any) -> None:
        raise KeyError("mine")

    async def work() -> None:
        pool = pool_of(colour, server, 1, prepare=prepare)
        await settle(pool.start())
        with pytest.raises(KeyError, match="mine"):
            await settle(pool.acquire(30))
        await settle(pool.close())

    colour.run(work)
    assert machines.alive == set()


def test_a_run_is_reported_advised_and_recorded(colour: Colour, server: FakeServer, tmp_path: Path) -> None:
    machines = Machines(server)
    log = tmp_path / "audit.jsonl"
    config = ExecutionConfig(
        timeout_seconds=5, memory_mb=256, allowed_imports=frozenset({"math"}), env={"KEY": "secret"}, user="user"
    )
    code = "import math, os.path\nfrom socket import socket\nprint('hi')"
    late = {"error": "command timeout after 5s", "code": "command_timeout", "stdout": "so far", "stderr": ""}

    async def work() -> Any:
        pool = pool_of(colour, server, 1, config=config, audit=AuditLog(log))
        await settle(pool.start())
        first = await settle(pool.run(code, actor="ada"))
        machines.run_answer = Answer(504, late)
        second = await settle(pool.run("while True: pass"))
        await settle(pool.close())
        return first, second

    first, second = colour.run(work)
    assert (first.ok, first.stdout) == (True, "hi\n")
    assert [line.split(",")[0] for line in first.advice] == ["imports os", "imports socket"]
    assert (second.timed_out, second.exit_code, second.stdout) == (True, None, "so far")
    assert machines.made[0]["memory_mb"] == 256
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(record["actor"], record["outcome"]) for record in records] == [("ada", "ok"), (None, "timeout")]
    how = {"language": "python", "timeout_seconds": 5, "memory_mb": 256, "output_limit": None}
    how.update(cpu_seconds=None, disk_limit_mb=None)
    whose = {"env": ["KEY"], "user": "user", "allowed_imports": ["math"]}
    assert records[0]["input"] == {"code": code, **how, **whose}
    assert "secret" not in log.read_text()
    assert records[0]["output"]["stdout"] == "hi\n"
    assert records[0]["sandbox_id"] != records[1]["sandbox_id"]
    assert log.stat().st_mode & 0o077 == 0
    assert machines.alive == set()


def test_a_run_that_wants_other_memory_has_a_machine_of_that_size(colour: Colour, server: FakeServer) -> None:
    machines = Machines(server)

    async def work() -> None:
        pool = pool_of(colour, server, 1, config=ExecutionConfig(memory_mb=512), max_busy=1)
        await settle(pool.start())
        await until_ready(pool, 1)
        await settle(pool.run("1", config=ExecutionConfig(memory_mb=2048)))
        assert [body["memory_mb"] for body in machines.made] == [512, 2048]
        assert machines.alive == {"m1"} and pool.status().busy == 0 and pool.status().served == 1
        await settle(pool.run("1", config=ExecutionConfig(memory_mb=512)))
        await settle(pool.run("1", config=ExecutionConfig()))
        await settle(pool.close())

    colour.run(work)
    assert 2048 not in [body["memory_mb"] for body in machines.made[2:]] and not machines.alive


def scripted(machines: Machines, request: Request) -> Answer:
    """The answers of the leased machine."""
    route = f"{request.method} {request.path.partition('/v1/sandboxes/')[2].partition('/')[2].partition('?')[0]}"
    late = {"error": "command timeout after 1s", "code": "command_timeout", "stdout": "so far", "stderr": ""}
    stream = 'event: stdout\ndata: {"chunk":"a"}\n\nevent: stdout\ndata: {"chunk":"b"}\n\n'
    ended = 'event: exit\ndata: {"exit_code":3,"reason":"exited"}\n\n'
    events = {"content-type": "text/event-stream"}
    if route == "POST exec":
        ran = Answer(200, {"stdout": "hi\n", "stderr": "", "exit_code": 0, "reason": "exited"})
        return Answer(504, late) if "sleep" in request.body.get("cmd", "") else ran
    cell = {"stdout": "", "stderr": "", "results": [], "error": {"ename": "ZeroDivisionError"}, "exit_code": 1}
    return {
        "POST exec/stream": Answer(200, (stream + ended).encode(), events),
        "POST repl/sessions": Answer(201, {"id": "ctx", "language": "python"}),
        "POST repl/sessions/ctx/run": Answer(200, cell),
        "PUT fs": Answer(200, {"path": "/f", "bytes": 2}),
        "GET fs": Answer(200, b"\xff\x00"),
        "POST fork": Answer(201, {"sandbox": {"id": "copy", "status": "running"}}),
    }.get(route, Answer(404, {"error": "nothing there", "code": "not_found"}))


def test_all_that_is_done_in_a_machine_that_was_lent_is_recorded(
    colour: Colour, server: FakeServer, tmp_path: Path
) -> None:
    machines = Machines(server)
    make = machines._post
    server.answers["POST", "*"] = lambda request: (make if request.path == "/v1/sandboxes" else answer)(request)
    server.answers["GET", "*"] = server.answers["PUT", "*"] = answer = partial(scripted, machines)
    local = tmp_path / "local"
    local.write_bytes(b"\xfe" * 300_000)
    records: List[AuditRecord] = []

    async def work() -> None:
        pool = pool_of(colour, server, 1, audit=AuditLog(records.append))
        await settle(pool.start())
        sandbox = await settle(pool.acquire(30, actor="ada"))
        await settle(sandbox.exec("echo hi", env={"KEY": "secret"}))
        with pytest.raises(SandboxTimeout):
            await settle(sandbox.exec("sleep 9", timeout_seconds=1))
        await settle(sandbox.exec_stream("echo ab; exit 3"))
        unread = sandbox.stream("echo ab")
        await settle(next(iter(unread)) if colour.name == "sync" else unread.__aiter__().__anext__())
        await settle(unread.close() if colour.name == "sync" else unread.aclose())
        context = await settle(sandbox.contexts.create())
        await settle(context.run_code("1 / 0"))
        await settle(sandbox.files.write("/f", "é"))
        await settle(sandbox.files.upload(local, "/f"))
        assert await settle(sandbox.files.read("/f")) == b"\xff\x00"
        await settle(sandbox.files.download("/f", tmp_path / "copy"))
        with pytest.raises(NotFoundError):
            await settle(sandbox.files.stat("/missing"))
        copy = await settle(sandbox.fork())
        await settle(copy.exec("echo hi"))
        await settle(pool.release(sandbox))
        await settle(pool.run("print()"))
        await settle(pool.close())

    colour.run(work)
    *lent, gone, own = records
    assert [(record.action, record.outcome) for record in lent] == [
        ("POST /exec", "ok"),
        ("POST /exec", "timeout"),
        ("POST /exec/stream", "failed"),
        ("POST /exec/stream", "left"),
        ("POST /repl/sessions", "ok"),
        ("POST /repl/sessions/ctx/run", "failed"),
        ("PUT /fs", "ok"),
        ("PUT /fs", "ok"),
        ("GET /fs", "ok"),
        ("GET /fs", "ok"),
        ("GET /fs/stat", "error"),
        ("POST /fork", "ok"),
        ("POST /exec", "ok"),
    ]
    assert (gone.action, own.action) == ("DELETE /", "run") and {record.actor for record in [*lent, gone]} == {"ada"}
    assert [record.sandbox_id for record in lent] == [*["m1"] * 12, "copy"]
    by = [(record.input, record.output) for record in lent]
    assert by[0] == (
        {"cmd": "echo hi", "env": ["KEY"], **({"id": ANY} if colour.name == "async" else {})},
        {"stdout": "hi\n", "stderr": "", "exit_code": 0, "reason": "exited"},
    )
    assert by[1][1]["stdout"] == "so far" and "timeout" in by[1][1]["error"]
    assert (by[2][1]["stdout"], by[2][1]["exit_code"], by[3][1]) == ("ab", 3, {"stdout": "a"})
    assert by[5][0]["code"] == "1 / 0" and by[5][1]["error"]["ename"] == "ZeroDivisionError"
    digests = [hashlib.sha256(data).hexdigest() for data in (local.read_bytes(), b"\xff\x00")]
    assert (by[6][0], by[7][0]["size"], by[7][0]["sha256"]) == ({"path": "/f", "content": "é"}, 300_000, digests[0])
    assert by[8] == ({"path": "/f"}, {"content_base64": "/wA="})
    assert by[9][1] == {"size": 2, "sha256": digests[1]}
    assert "nothing there" in by[10][1]["error"]
