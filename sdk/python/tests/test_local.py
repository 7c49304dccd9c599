"""The local server. The tests start the real binary that ``SANDLING_BINARY`` names; none of them creates a machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator
from unittest.mock import ANY

import pytest
from colour import Colour, settle
from fake_server import Answer, FakeServer

from sandling import Client, ConfigError, Sandbox, SandlingError, local
from sandling import ConnectionError as LostConnection

real = pytest.mark.skipif("SANDLING_BINARY" not in os.environ, reason="SANDLING_BINARY names no server to start")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("SANDLING_HOME", str(tmp_path))
    monkeypatch.delenv("SANDLING_API", raising=False)
    monkeypatch.delenv("SANDLING_TOKEN", raising=False)
    yield tmp_path
    local.stop()


@real
def test_many_processes_at_once_start_one_server(home: Path) -> None:
    code = "from sandling import Client; c = Client(); print(c.api_url(), c.me()['scope'])"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(5)]
    printed = {process.communicate(timeout=300)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 5
    assert len(printed) == 1
    assert printed.pop().split()[1] == "operator"


@real
def test_a_server_that_died_is_replaced(home: Path) -> None:
    before = local.ensure()
    local._started[-1].kill()
    local._started[-1].wait()
    after = local.ensure()
    assert after.url != before.url
    assert Client().me()["workspace"] == "default"


@real
def test_a_client_goes_on_with_the_server_that_took_the_place_of_one_that_died(home: Path) -> None:
    with Client() as client:
        before = client.api_url()
        local._started[-1].kill()
        local._started[-1].wait()
        assert client.me()["workspace"] == "default"
        assert client.api_url() != before


@real
def test_the_server_can_be_stopped_and_starts_again(home: Path) -> None:
    local.ensure()
    assert local.stop()
    assert not local.stop()
    local.ensure()


@real
def test_a_client_does_not_wait_for_a_server_that_was_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    wait = local._wait
    monkeypatch.setattr(local, "_wait", lambda done, seconds: (waited.append(seconds), wait(done, seconds)))
    with Client() as client:
        before = client.api_url()
        assert local.stop()
        assert client.me()["workspace"] == "default"
        assert client.api_url() != before
    assert local.BACK_WITHIN not in waited


@real
def test_another_process_of_the_same_number_is_not_the_server(home: Path) -> None:
    state = home / "local-server.json"
    state.write_text(f'{{"url": "http://127.0.0.1:9", "pid": {os.getpid()}, "born": "1"}}')
    assert local.ensure().url != "http://127.0.0.1:9"


@contextlib.contextmanager
def announced(home: Path, url: str) -> Iterator[None]:
    (home / "token").write_text("sdl_secret")
    with open(home / "server", "w+") as file:
        file.write(f"{url}\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


BOX = {"id": "box", "template": "base", "status": "running", "persistent": False}
EXIT = Answer(200, b'event: exit\ndata: {"exit_code":0}\n\n', {"content-type": "text/event-stream"})


def answering() -> FakeServer:
    server = FakeServer()
    server.answers["POST", "/v1/sandboxes/box/exec"] = Answer(200, {"exit_code": 0, "stdout": "", "stderr": ""})
    server.answers["POST", "/v1/sandboxes/box/exec/stream"] = EXIT
    server.answers["PUT", "/v1/sandboxes/box/fs?path=%2Ff"] = Answer(200, {"bytes": 3})
    return server


@pytest.mark.parametrize("verb", ["exec", "exec_stream", "upload"])
def test_a_server_that_was_replaced_is_found_where_it_is_now(home: Path, colour: Colour, verb: str) -> None:
    (home / "file").write_text("abc")
    servers = [answering(), answering()]

    async def ask(box: Any) -> Any:
        if verb == "upload":
            return await settle(box.files.upload(home / "file", "/f"))
        return await settle(getattr(box, verb)("true"))

    async def work() -> None:
        client = colour.Client()
        box = colour.Sandbox._of(client, BOX)
        for server in servers:
            with announced(home, server.url):
                await ask(box)
                assert await settle(client.api_url()) == server.url
                await ask(box)
            server.close()
        await settle(client.aclose() if colour.name == "async" else client.close())

    colour.run(work)
    assert [len(server.requests) for server in servers] == [2, 2]
    assert servers[1].requests[0].headers["host"] == servers[1].url[len("http://") :]
    assert servers[1].requests[0].body in ({"cmd": "true"}, {"cmd": "true", "id": ANY}, b"abc")


def test_a_server_that_somebody_restarts_is_waited_for(
    home: Path, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home / "sandling"
    program.write_text(f"#!/bin/sh\ntouch {home}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("SANDLING_BINARY", str(program))
    before, after = answering(), answering()

    def restart() -> None:
        # It shuts down, is gone, and comes back.
        with announced(home, ""):
            time.sleep(0.3)
        time.sleep(0.3)
        with announced(home, after.url):
            asked.wait(60)

    async def work() -> None:
        box = colour.Sandbox._of(colour.Client(), BOX)
        with announced(home, before.url):
            await settle(box.exec("true"))
        before.close()
        restarting.start()
        await settle(box.exec("true"))

    restarting, asked = threading.Thread(target=restart), threading.Event()
    colour.run(work)
    asked.set()
    restarting.join()
    after.close()
    assert len(after.requests) == 1 and not (home / "started").exists()


def test_a_server_that_somebody_named_is_not_looked_for_elsewhere(home: Path, colour: Colour) -> None:
    gone, other = answering(), answering()

    async def work() -> None:
        box = colour.Sandbox._of(colour.Client(gone.url, "key"), BOX)
        await settle(box.exec("true"))
        gone.close()
        with pytest.raises(LostConnection):
            await settle(box.exec("true"))

    with announced(home, other.url):
        colour.run(work)
    other.close()
    assert not other.requests


def test_a_server_that_somebody_announced_is_used(home: Path) -> None:
    with announced(home, "http://127.0.0.1:4242"):
        assert local.ensure() == ("http://127.0.0.1:4242", "sdl_secret")
    # Nobody holds the lock, so nobody listens there.
    assert local._said(home) is None


def test_a_server_that_cannot_start_says_why(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho the disk is full >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("SANDLING_BINARY", str(broken))
    with pytest.raises(ConfigError, match="the disk is full"):
        local.ensure()


def test_a_binary_beside_this_python_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``.venv/bin/python`` finds it, although the environment is not activated."""
    beside = home / "bin"
    beside.mkdir()
    (beside / "sandling").write_text("#!/bin/sh\n")
    (beside / "sandling").chmod(0o755)
    monkeypatch.delenv("SANDLING_BINARY", raising=False)
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert local.binary() == str(beside / "sandling")
    elsewhere = home / "elsewhere"
    beside.rename(elsewhere)
    beside.mkdir()
    monkeypatch.setenv("PATH", str(elsewhere))
    assert local.binary() == str(elsewhere / "sandling"), "the PATH comes first"


@real
def test_a_template_that_is_not_built_is_named_with_the_command_that_builds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDLING_TEMPLATES", str(home / "no-templates"))
    endpoint = local.ensure()
    told = pytest.raises(SandlingError, match="`sandling template build code-interpreter`")
    with Client(endpoint.url, endpoint.token) as client, told as raised:
        Sandbox.create(client=client)
    assert raised.value.code == "template_not_built"


def test_without_a_binary_the_ways_out_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDLING_BINARY", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"SANDLING_API.*PATH.*SANDLING_BINARY"):
        local.ensure()
