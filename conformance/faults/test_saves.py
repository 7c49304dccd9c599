"""Interrupted saves and truncated snapshot files: nothing acknowledged is lost."""

import contextlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from support.processes import kill_machine, qemu_of, until


def standing(server, sandbox, change):
    """Changes the layers in a sandbox's row."""
    with sqlite3.connect(server.home / "sandling.db") as store:
        (text,) = store.execute("SELECT detail FROM sandboxes WHERE id = ?", (sandbox,)).fetchone()
        detail = json.loads(text)
        change(detail["standing"])
        store.execute("UPDATE sandboxes SET detail = ? WHERE id = ?", (json.dumps(detail), sandbox))


def cut_off(server, sandbox, snapshot, how_far):
    """Makes a finished save look as if the server had died during it."""
    files = server.home / "snapshots" / snapshot
    top = next((server.home / "sandboxes" / sandbox).rglob(f"disk-{snapshot}.qcow2"))
    moving = {"id": snapshot, "from": "disk.qcow2"}
    if how_far == "named":
        # Before anything happened: the named files do not exist.
        moving = {"id": str(uuid.uuid4()), "from": top.name}
        standing(server, sandbox, lambda standing: standing.update(moving=moving))
        return
    # The disk has switched, and its layer is still among the machine's files.
    (files / "disk.qcow2").rename(top.parent / "disk.qcow2")
    for file in ("pages", "map", "state"):
        (files / file).unlink()
    with sqlite3.connect(server.home / "sandling.db") as store:
        store.execute("DELETE FROM snapshots WHERE id = ?", (snapshot,))
    before = {"disk": [], "top": None} if how_far == "moved on" else {}
    standing(server, sandbox, lambda standing: standing.update(saved=None, moving=moving, **before))


@pytest.mark.parametrize("how_far", ["named", "moved on", "written down"])
def test_a_save_that_was_cut_off_is_mended_by_the_next_server(serve, how_far):
    server, client = serve()
    sandbox = client.create(ttl_seconds=1800)
    path = f"/v1/sandboxes/{sandbox}"
    client.run(sandbox, "echo one > /root/file; sync")
    snapshot = client.call("POST", f"{path}/snapshots").expect(201).json()["id"]
    client.run(sandbox, "echo two >> /root/file; sync")
    server.kill()
    cut_off(server, sandbox, snapshot, how_far)
    client, _ = server.start()
    assert client.run(sandbox, "cat /root/file") == "one\ntwo\n"
    assert client.call("GET", path).json()["status"] == "running"
    again = client.call("POST", f"{path}/snapshots").expect(201).json()["id"]
    copy = client.call("POST", "/v1/sandboxes", {"from_snapshot": again}).expect(201).json()["id"]
    assert client.run(copy, "cat /root/file") == "one\ntwo\n"
    client.call("POST", f"{path}/hibernate").expect(200)
    assert client.run(sandbox, "cat /root/file") == "one\ntwo\n"
    for made in (sandbox, copy):
        client.delete(made)


def ask(client, path, answers):
    try:
        answers.append(client.call("POST", path))
    except (OSError, http.client.HTTPException) as error:
        answers.append(error)


def expect_after_restart(server, sandbox, cmd, printed):
    """Checks that the next server has the sandbox unchanged and can fork it."""
    client, _ = server.start()
    assert client.run(sandbox, cmd) == printed
    forked = client.call("POST", f"/v1/sandboxes/{sandbox}/fork").expect(201).json()["children"][0]["id"]
    assert client.run(forked, cmd) == printed
    for made in (sandbox, forked):
        client.delete(made)


@pytest.mark.parametrize("delay", [0.01, 0.06, 0.2])
def test_a_server_that_is_killed_while_it_saves_loses_nothing(serve, delay):
    server, client = serve()
    sandbox = client.create(ttl_seconds=1800)
    client.run(sandbox, "head -c 20000000 /dev/urandom > /root/file; sync")
    digest = client.run(sandbox, "sha256sum /root/file")
    saving = threading.Thread(target=ask, args=(client, f"/v1/sandboxes/{sandbox}/snapshots", []))
    saving.start()
    time.sleep(delay)
    server.kill()
    saving.join()
    expect_after_restart(server, sandbox, "sha256sum /root/file", digest)


@pytest.fixture
def held():
    """Stops a process for some seconds, to simulate a busy host. A process that is already stopped goes on then."""
    timers = []

    def hold(pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        timers.append(threading.Timer(seconds, os.kill, (pid, signal.SIGCONT)))
        timers[-1].start()

    yield hold
    for timer in timers:
        timer.join()


@contextlib.contextmanager
def stopped_copy(machine):
    """Yields a function that returns the process of the next copy of `machine`. The copy is stopped as it starts."""
    program = Path(__file__).parent / "support" / "stop_next_child.py"
    with subprocess.Popen([sys.executable, program, str(machine)], stdout=subprocess.PIPE, text=True) as watcher:
        try:
            assert watcher.stdout.readline() == "ready\n"
            yield lambda: int(watcher.stdout.readline())
        finally:
            watcher.kill()


@pytest.mark.parametrize("slow, seconds", [("the machine", 8), ("its copy", 3)])
def test_a_save_that_takes_long_to_end_outlives_the_server_that_was_killed(serve, held, slow, seconds):
    server, client = serve()
    sandbox = client.create(ttl_seconds=1800)
    client.run(sandbox, "head -c 20000000 /dev/urandom > /dev/shm/file")
    digest = client.run(sandbox, "sha256sum /dev/shm/file")
    machine = qemu_of(server.home / "sandboxes" / sandbox)
    saving = threading.Thread(target=ask, args=(client, f"/v1/sandboxes/{sandbox}/snapshots", []))
    with stopped_copy(machine) as wait_for_copy:
        saving.start()
        copy = wait_for_copy()
    if slow == "its copy":
        held(copy, seconds)
    else:
        held(machine, seconds)
        os.kill(copy, signal.SIGCONT)
    server.kill()
    saving.join()
    expect_after_restart(server, sandbox, "sha256sum /dev/shm/file", digest)


def test_a_copy_that_takes_long_to_end_is_in_no_later_saves_way(serve, held):
    server, client = serve()
    sandbox = client.create()
    machine = qemu_of(server.home / "sandboxes" / sandbox)
    for _ in range(3):
        client.run(sandbox, "head -c 30000000 /dev/urandom > /dev/shm/ballast")
        saving = threading.Thread(target=ask, args=(client, f"/v1/sandboxes/{sandbox}/snapshots", answers := []))
        with stopped_copy(machine) as wait_for_copy:
            saving.start()
            held(wait_for_copy(), 0.5)
        saving.join()
        answers[0].expect(201)
    client.delete(sandbox)


def test_a_machine_that_dies_while_it_is_saved_takes_nobody_with_it(serve):
    server, client = serve()
    doomed, other = client.create(), client.create()
    client.run(doomed, "head -c 50000000 /dev/urandom > /dev/shm/ballast")
    answers = []
    saving = threading.Thread(target=ask, args=(client, f"/v1/sandboxes/{doomed}/snapshots", answers))
    saving.start()
    time.sleep(0.05)
    kill_machine(server.home / "sandboxes" / doomed)
    saving.join()
    until("its end is known", lambda: doomed not in client.living())
    if answers[0].status == 201:
        # The save was faster than the stop. Then its answer must be correct.
        copy = client.call("POST", "/v1/sandboxes", {"from_snapshot": answers[0].json()["id"]}).expect(201).json()["id"]
        client.delete(copy)
    client.call("POST", f"/v1/sandboxes/{other}/snapshots").expect(201)
    client.delete(other)


@pytest.mark.parametrize("file", ["pages", "map", "state", "disk.qcow2"])
def test_a_torn_file_of_a_snapshot_is_refused_and_the_rest_goes_on(serve, file):
    server, client = serve()
    sandbox = client.create()
    saved = []
    for _ in range(2):
        client.run(sandbox, "head -c 1000000 /dev/urandom > /dev/shm/something")
        saved.append(client.call("POST", f"/v1/sandboxes/{sandbox}/snapshots").expect(201).json()["id"])
    torn = server.home / "snapshots" / saved[1] / file
    os.truncate(torn, torn.stat().st_size // 2)
    refused = client.call("POST", "/v1/sandboxes", {"from_snapshot": saved[1]})
    assert (refused.status, refused.code) == (409, "snapshot_unusable"), refused.body
    assert str(server.home) not in refused.json()["error"]
    copy = client.call("POST", "/v1/sandboxes", {"from_snapshot": saved[0]}).expect(201).json()["id"]
    assert client.run(copy, "echo here") == client.run(sandbox, "echo here") == "here\n"
    for made in (sandbox, copy):
        client.delete(made)


def test_a_volume_outlives_a_killed_server_and_its_sandbox(serve):
    server, client = serve()
    client.call("POST", "/v1/volumes", {"name": "data", "size_mb": 64}).expect(201)
    wish = {"volumes": [{"name": "data", "mount": "/data"}], "ttl_seconds": 1800}
    sandbox = client.create(**wish)
    client.run(sandbox, "echo kept > /data/file; sync")
    server.kill()
    client, _ = server.start()
    assert client.run(sandbox, "cat /data/file") == "kept\n"
    assert client.call("POST", "/v1/sandboxes", {"template": "base", **wish}).status == 409
    assert client.call("DELETE", "/v1/volumes/data").status == 409
    kill_machine(server.home / "sandboxes" / sandbox)
    until("its end is known", lambda: sandbox not in client.living())
    reader = client.create(volumes=[{"name": "data", "mount": "/data", "read_only": True}])
    assert client.run(reader, "cat /data/file") == "kept\n"
    client.delete(reader)
    client.call("DELETE", "/v1/volumes/data").expect(204)
