"""Pools, with a server whose machines are only numbers."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any, List, Set

import pytest
from colour import Colour, settle
from fake_server import Answer, Asked, FakeServer

from sandling import AuditLog, BadRequestError, CapacityError, ExecutionConfig


class Machines:
    """Answers as a server does, and knows which machines are alive."""

    def __init__(self, server: FakeServer) -> None:
        self.alive: Set[str] = set()
        self.made: List[Any] = []
        self.run_answer = Answer(200, {"stdout": "hi\n", "stderr": "", "exit_code": 0, "reason": "exited"})
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        server.answers.update(
            {("POST", "*"): self._post, ("PATCH", "*"): self._patch, ("DELETE", "*"): self._delete},
        )

    def _post(self, asked: Asked) -> Answer:
        if asked.path != "/v1/sandboxes":
            return self.run_answer
        with self._lock:
            name = f"m{next(self._numbers)}"
            self.alive.add(name)
            self.made.append(asked.body)
        return Answer(201, {"id": name, "template": "base", "status": "running"})

    def _patch(self, asked: Asked) -> Answer:
        if asked.path.split("/")[3] not in self.alive:
            return Answer(404, {"error": "sandbox not found", "code": "not_found"})
        return Answer(200, {"ttl_seconds": 1, "idle_seconds": 0, "persistent": False})

    def _delete(self, asked: Asked) -> Answer:
        self.alive.discard(asked.path.split("/")[3])
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


def test_what_the_preparation_raises_reaches_whoever_waits(colour: Colour, server: FakeServer) -> None:
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
