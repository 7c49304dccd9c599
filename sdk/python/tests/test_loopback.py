"""The async client's own connections, against sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from asyncio import selector_events
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, Iterator, List, Tuple

import httpcore
import pytest
import trustme

from sandling import AsyncClient, AsyncSandbox, BadRequestError, Client, RequestTimeout, Sandbox
from sandling import ConnectionError as LostConnection

BOX = {"id": "box", "template": "base", "status": "running", "persistent": False}
#: More than the buffers of a connection hold on both sides.
MUCH = 64 << 20


def answer(body: bytes = b'{"exit_code":0,"stdout":"","stderr":""}', *more: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK", b"content-type: application/json", b"content-length: %d" % len(body), *more]
    return b"\r\n".join([*head, b"", body])


def request_of(connection: socket.socket) -> bytes:
    """One complete request; empty at the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(1 << 16)
        if not more:
            return b""
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0].split(b":")[1]):
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


Serve = Callable[[socket.socket], None]


class Sockets:
    """A server that handles every connection with a function of the test."""

    def __init__(self, *serve: Serve, tls: Any = None) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._serve, self._tls = serve, tls
        self.connections: List[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections.append(connection)
                serve = self._serve[min(len(self.connections), len(self._serve)) - 1]
                self._threads.append(threading.Thread(target=self._one, args=(serve, connection), daemon=True))
                self._threads[-1].start()

    def _one(self, serve: Serve, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            serve(self._tls.wrap_socket(connection, server_side=True) if self._tls else connection)

    def close(self) -> None:
        for one in (self._listening, *self.connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def usual(connection: socket.socket) -> None:
    while request_of(connection):
        connection.sendall(answer())


@contextlib.contextmanager
def serving(*serve: Serve, **more: Any) -> Iterator[Sockets]:
    sockets = Sockets(*serve, **more)
    try:
        yield sockets
    finally:
        sockets.close()


def run(url: str, work: Callable[[AsyncSandbox], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with AsyncClient(url, "key") as client:
            return await work(AsyncSandbox._of(client, BOX))

    return asyncio.run(main())


def test_a_request_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: List[bytes] = []
    write = selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def counted(transport: Any, data: bytes) -> None:
        sent.append(bytes(data))
        write(transport, data)

    monkeypatch.setattr(selector_events._SelectorSocketTransport, "write", counted)  # type: ignore[attr-defined]

    async def work(box: AsyncSandbox) -> None:
        for number in range(3):
            await box.exec(f"echo {number}")

    with serving(usual) as server:
        run(server.url, work)
        assert len(server.connections) == 1
    assert [json.loads(data.partition(b"\r\n\r\n")[2])["cmd"] for data in sent] == ["echo 0", "echo 1", "echo 2"]


def test_a_request_that_is_cancelled_closes_its_connection_and_no_other() -> None:
    asked, ended = threading.Event(), threading.Event()

    def silent(connection: socket.socket) -> None:
        request_of(connection)
        asked.set()
        if not connection.recv(1):
            ended.set()

    async def work(box: AsyncSandbox) -> None:
        task = asyncio.ensure_future(box.exec("sleep 300"))
        assert await asyncio.get_running_loop().run_in_executor(None, asked.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await box.exec("true")).exit_code == 0
        assert await asyncio.get_running_loop().run_in_executor(None, ended.wait, 10)

    with serving(silent, usual) as server:
        run(server.url, work)
        assert len(server.connections) == 2


def test_a_silent_server_is_not_waited_for() -> None:
    async def work(box: AsyncSandbox) -> None:
        with pytest.raises(RequestTimeout):
            await box.client._transport.request("GET", "/v1/x", timeout=0.3)
        assert (await box.exec("true")).exit_code == 0

    def silent(connection: socket.socket) -> None:
        request_of(connection)
        connection.recv(1)

    with serving(silent, usual) as server:
        run(server.url, work)


def test_a_server_that_does_not_read_is_not_waited_for() -> None:
    async def work(box: AsyncSandbox) -> None:
        with pytest.raises(RequestTimeout):
            await box.client._transport.fetch("PUT", "/v1/x", content=b"x" * MUCH, timeout=0.3)

    with serving(lambda connection: time.sleep(30)) as server:
        run(server.url, work)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_kept_connection_that_the_server_closed_is_not_used(is_busy: bool) -> None:
    closed = threading.Event()

    def once(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer())
        time.sleep(0.1)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    async def work(box: AsyncSandbox) -> None:
        await box.exec("true")
        if is_busy:
            # The event loop cannot notice it in the meantime.
            closed.wait(10)
        else:
            assert await asyncio.get_running_loop().run_in_executor(None, closed.wait, 10)
        assert (await box.exec("true")).exit_code == 0

    with serving(once, usual) as server:
        run(server.url, work)
        assert len(server.connections) == 2


@pytest.mark.parametrize("half", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", answer(b"x" * 9)[:-3]])
def test_an_answer_that_breaks_off_is_a_lost_connection(half: bytes) -> None:
    def broken(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(half)
        connection.shutdown(socket.SHUT_RDWR)

    async def work(box: AsyncSandbox) -> None:
        with pytest.raises(LostConnection):
            await box.exec("true")

    with serving(broken) as server:
        run(server.url, work)


def test_a_server_that_refuses_without_reading_is_heard() -> None:
    def early(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MUCH >> 16):
            yield b"x" * (1 << 16)

    async def work(box: AsyncSandbox) -> None:
        with pytest.raises(BadRequestError) as raised:
            await box.client._transport.fetch("PUT", "/v1/x", content=pieces(), timeout=30)
        assert raised.value.status == 413
        assert (await box.exec("true")).exit_code == 0

    with serving(early, usual) as server:
        run(server.url, work)


def test_a_connection_can_become_something_else() -> None:
    def switching(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nfirst")
        while heard := connection.recv(100):
            connection.sendall(heard.upper())

    async def work(box: AsyncSandbox) -> None:
        headers = {"connection": "upgrade", "upgrade": "x"}
        async with box.client._transport.stream("GET", "/v1/x", headers=headers, silence=None) as answer:
            wire = answer.extensions["network_stream"]
            assert (answer.status_code, await wire.read(100, 10)) == (101, b"first")
            await wire.write(b"second", 10)
            assert await wire.read(100, 10) == b"SECOND"
            with pytest.raises(httpcore.ReadTimeout):
                await wire.read(100, 0.05)
            await wire.write(b"third", 10)
            assert await wire.read(100, 10) == b"THIRD"

    with serving(switching) as server:
        run(server.url, work)


def test_nobody_there_is_a_lost_connection() -> None:
    with serving(usual) as server:
        url = server.url

    async def work(box: AsyncSandbox) -> None:
        with pytest.raises(LostConnection):
            await box.exec("true")

    run(url, work)


def test_a_slow_reader_holds_the_server_up_and_gets_everything() -> None:
    sent = 0

    def much(connection: socket.socket) -> None:
        nonlocal sent
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MUCH)
        for _ in range(MUCH >> 16):
            connection.sendall(b"x" * (1 << 16))
            sent += 1 << 16

    async def work(box: AsyncSandbox) -> Tuple[int, int]:
        size, seen = 0, 0
        async for block in box.files.stream("/much"):
            if not size:
                await asyncio.sleep(1)
                seen = sent
            size += len(block)
        return size, seen

    with serving(much) as server:
        size, seen = run(server.url, work)
    assert size == MUCH and seen < MUCH // 2


def test_an_upload_arrives_whole_though_it_is_read_slowly(tmp_path: Path) -> None:
    received = bytearray()

    def slow(connection: socket.socket) -> None:
        time.sleep(0.3)
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received.extend(connection.recv(1 << 20))
        connection.sendall(answer(b'{"bytes":1}'))

    local = tmp_path / "file"
    local.write_bytes(b"\xee" * (MUCH // 4))

    async def work(box: AsyncSandbox) -> Any:
        return await box.files.upload(local, "/file")

    with serving(slow) as server:
        assert run(server.url, work) == {"bytes": 1}
    assert received.count(b"\xee") == MUCH // 4


def test_several_requests_at_once_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(4, timeout=10)

    def patient(connection: socket.socket) -> None:
        request_of(connection)
        together.wait()
        connection.sendall(answer())

    async def work(box: AsyncSandbox) -> List[Any]:
        return await asyncio.gather(*(box.exec("true") for _ in range(4)))

    with serving(patient) as server:
        assert [result.exit_code for result in run(server.url, work)] == [0] * 4


MANY_LOOPS = """
import asyncio, gc, os
from sandling import AsyncSandbox
from sandling._async import client

async def work():
    assert (await AsyncSandbox._of(client.get_default_client(), {"id": "box"}).exec("true")).exit_code == 0

gc.disable()
for _ in range(20):
    asyncio.run(work())
    print(len(client._defaults), len(os.listdir("/proc/self/fd")))
"""


def test_default_clients_do_not_outlive_their_event_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(usual) as server:
        monkeypatch.setenv("SANDLING_API", server.url)
        monkeypatch.setenv("SANDLING_TOKEN", "key")
        ran = subprocess.run([sys.executable, "-c", MANY_LOOPS], stdout=subprocess.PIPE, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 20 and len(set(lines)) == 1, lines


def test_tls_with_an_authority_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async def work(box: AsyncSandbox) -> Any:
        return (await box.exec("true")).exit_code

    with serving(usual, tls=tls) as server:
        with pytest.raises(LostConnection):
            run(server.url, work)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert run(server.url, work) == 0
        with Client(server.url, "key") as client:
            assert Sandbox._of(client, BOX).exec("true").exit_code == 0
