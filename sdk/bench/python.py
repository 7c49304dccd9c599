"""Measures the Python SDK: its import, and an exec compared with the same exec over a bare HTTP connection, blocking
and async.

    python sdk/bench/python.py [--rounds 300]

Needs a server (``SANDLING_API``, ``SANDLING_TOKEN``) or a ``sandling`` that can be started. Both take turns within one
run, so that a busy moment affects both. The result is the median of the differences.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, Awaitable, Callable, Tuple
from urllib.parse import urlsplit

from sandling import AsyncSandbox, Client, Sandbox

IMPORT_AIM_MS = 150.0
OVERHEAD_AIM_MS = 1.0
COMMAND = "/bin/true"


Took = Tuple[float, float]


def took(work: Callable[[], Any]) -> Took:
    """Milliseconds of wall clock and of this process's CPU time."""
    clock, computing = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - clock) * 1000, (time.process_time() - computing) * 1000


def cold(code: str, rounds: int) -> Took:
    """What code adds to the start of an interpreter: wall clock, and CPU time, which a busy host affects less."""

    def start(code: str) -> Took:
        clock, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        computing = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return (time.perf_counter() - clock) * 1000, computing * 1000

    pairs = [(start("pass"), start(code)) for _ in range(rounds)]
    clock, computing = (
        statistics.median(after[which] for _, after in pairs) - statistics.median(before[which] for before, _ in pairs)
        for which in (0, 1)
    )
    return clock, computing


class Bare:
    """The same request over a connection of the standard library."""

    def __init__(self, url: str, token: str, sandbox_id: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), parts.port
        self._connection = http.client.HTTPConnection(self.host, self.port)
        self.path = f"/v1/sandboxes/{sandbox_id}/exec"
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def exec(self) -> None:
        self._connection.request("POST", self.path, json.dumps({"cmd": COMMAND}), self.headers)
        answer = json.loads(self._connection.getresponse().read())
        assert answer["exit_code"] == 0, answer


class AwaitedBare:
    """The same request over a connection of the event loop."""

    def __init__(self, bare: Bare, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._bare, self._reader, self._writer = bare, reader, writer

    @classmethod
    async def connect(cls, bare: Bare) -> AwaitedBare:
        return cls(bare, *await asyncio.open_connection(bare.host, bare.port))

    async def exec(self) -> None:
        body = json.dumps({"cmd": COMMAND})
        headers = {
            "host": f"{self._bare.host}:{self._bare.port}",
            "content-length": str(len(body)),
            **self._bare.headers,
        }
        lines = [f"POST {self._bare.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", body]
        self._writer.write("\r\n".join(lines).encode())
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
        answer = json.loads(await self._reader.readexactly(int(length.split(":")[1])))
        assert answer["exit_code"] == 0, answer

    def close(self) -> None:
        self._writer.close()


def blocking(sandbox: Sandbox, bare: Bare, rounds: int) -> list[tuple[Took, Took]]:
    pairs = []
    for number in range(rounds):
        # The second one finds warm caches in the guest, so the order alternates.
        first, second = (bare.exec, lambda: sandbox.exec(COMMAND))[:: 1 if number % 2 else -1]
        times = [took(first), took(second)][:: 1 if number % 2 else -1]
        pairs.append((times[0], times[1]))
    return pairs


async def awaited(sandbox_id: str, bare: Bare, rounds: int) -> list[tuple[Took, Took]]:
    sandbox = await AsyncSandbox.get(sandbox_id)
    awaited_bare = await AwaitedBare.connect(bare)

    async def took(work: Callable[[], Awaitable[Any]]) -> Took:
        clock, computing = time.perf_counter(), time.process_time()
        await work()
        return (time.perf_counter() - clock) * 1000, (time.process_time() - computing) * 1000

    def own() -> Awaitable[Any]:
        return sandbox.exec(COMMAND)

    pairs = []
    for number in range(rounds):
        if number % 2:
            raw = await took(awaited_bare.exec)
            pairs.append((raw, await took(own)))
        else:
            sdk = await took(own)
            pairs.append((await took(awaited_bare.exec), sdk))
    awaited_bare.close()
    await sandbox.client.aclose()
    return pairs


def report(name: str, pairs: list[tuple[Took, Took]]) -> bool:
    bare = statistics.median(raw for (raw, _), _ in pairs)
    over = statistics.median(own - raw for (raw, _), (own, _) in pairs)
    computing = statistics.median(own - raw for (_, raw), (_, own) in pairs)
    print(
        f"{name}: bare {bare:.2f} ms, SDK {over:+.2f} ms ({(bare + over) / bare:.3f} x), of which computing "
        f"{computing:+.2f} ms; {over / OVERHEAD_AIM_MS:.2f} of the aim (p50, +{OVERHEAD_AIM_MS:g} ms)"
    )
    return over <= OVERHEAD_AIM_MS


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    kept = []
    # The second loads what the first loads lazily; httpx loads with the first connection.
    for code in ("import sandling", "from sandling import Sandbox"):
        imported, computing = cold(code, max(5, rounds // 20))
        print(
            f"{code}: {imported:.0f} ms, of which computing {computing:.0f} ms; "
            f"{imported / IMPORT_AIM_MS:.2f} of the aim ({IMPORT_AIM_MS:g} ms)"
        )
        kept.append(imported <= IMPORT_AIM_MS or code != "import sandling")
    print("import httpx, beside it: {:.0f} ms, of which computing {:.0f} ms".format(*cold("import httpx", 5)))
    with Client() as client, Sandbox.create("base", ttl_seconds=900, client=client) as sandbox:
        endpoint = client._transport.located()
        bare = Bare(endpoint.url, endpoint.token, sandbox.id)
        blocking(sandbox, bare, 20)
        kept.append(report("exec, blocking", blocking(sandbox, bare, rounds)))
        kept.append(report("exec, async", asyncio.run(awaited(sandbox.id, bare, rounds))))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
