"""Pauses, forks and snapshots keep everything."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from e2b import Sandbox, SandboxException, SandboxNotFoundException, SandboxQuery, SandboxState
from e2b_code_interpreter import Sandbox as Interpreter
from support import wire
from support.waiting import until


def pause_mode(sandbox):
    """What a pause has saved. The client does not show it."""
    return wire.send("GET", f"/sandboxes/{sandbox.sandbox_id}", wire.key()).json()["pauseMode"]


def test_everything_survives_every_pause(make):
    made = make(timeout=300)
    server = made.commands.run("echo up; exec sleep 1000", background=True, timeout=0)
    for number in range(2):
        made.files.write(f"kept-{number}", "text")
        assert made.pause() and not made.pause()
        assert not made.is_running()
        assert made.get_info().state == SandboxState.PAUSED
        with pytest.raises(SandboxNotFoundException):
            made.set_timeout(600)
        again = made.connect()
        assert again.sandbox_id == made.sandbox_id and made.is_running()
        assert [made.files.read(f"kept-{before}") for before in range(number + 1)] == ["text"] * (number + 1)
    assert server.pid in [process.pid for process in made.commands.list()]


def has_its_identity(made, template):
    """Whether the sandbox has the files that name it. The server writes them in the background."""
    files = "/run/e2b/.E2B_SANDBOX_ID /run/e2b/.E2B_TEMPLATE_ID /run/e2b/.E2B_SANDBOX"
    return made.commands.run(f"head -q {files}; true").stdout == f"{made.sandbox_id}{template}true"


def boot_id(made):
    return made.files.read("/proc/sys/kernel/random/boot_id")


def test_a_pause_without_memory_keeps_the_disk_and_the_sandbox_boots(make):
    made = make(timeout=300, envs={"COLOR": "blue"})
    made.files.write("kept", "text")
    made.files.write("/dev/shm/memory", "text")
    server = made.commands.run("exec sleep 1000", background=True, timeout=0)
    boots = [boot_id(made)]
    assert made.pause(mode="filesystem") and not made.pause(mode="filesystem")
    assert pause_mode(made) == "filesystem"
    made.connect()
    assert made.files.read("kept") == "text" and not made.files.exists("/dev/shm/memory")
    assert made.commands.run("echo $COLOR $E2B_SANDBOX_ID").stdout == f"blue {made.sandbox_id}\n"
    until("the files that name it", lambda: has_its_identity(made, "base"))
    assert server.pid not in [process.pid for process in made.commands.list()]
    boots.append(boot_id(made))
    # A sandbox whose memory was saved boots on request.
    made.files.write("/dev/shm/memory", "text")
    made.commands.run("sync")
    assert made.pause() and pause_mode(made) == "full"
    made.connect(on_resume="reboot")
    assert made.files.read("kept") == "text" and not made.files.exists("/dev/shm/memory")
    boots.append(boot_id(made))
    assert len(set(boots)) == 3
    made.pause()
    made.connect()
    assert boot_id(made) == boots[-1], "a sandbox that wakes has not booted"


def test_at_its_end_a_sandbox_can_go_to_sleep_and_be_woken_by_use(make):
    made = make(timeout=8, lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert made.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}
    until("its sleep", lambda: made.get_info().state == SandboxState.PAUSED)
    time.sleep(1)
    assert made.get_info().state == SandboxState.PAUSED
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert made.sandbox_id in [info.sandbox_id for info in paused]
    assert made.commands.run("echo awake").stdout == "awake\n"
    left = made.get_info().end_at - datetime.now(timezone.utc)
    assert timedelta(seconds=250) < left <= timedelta(seconds=300), "traffic gives it at least five minutes"
    made.set_timeout(60)


def test_calls_under_way_end_before_a_pause_and_later_ones_wake_the_sandbox(make):
    made = make(timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True})
    made.files.write("kept", "text")
    enough = threading.Event()
    reads = [0, 0]

    def read(reader):
        again = Sandbox.connect(made.sandbox_id, timeout=300)
        while not enough.is_set():
            assert again.files.read("kept") == "text"
            reads[reader] += 1

    with ThreadPoolExecutor() as beside:
        reading = [beside.submit(read, reader) for reader in range(len(reads))]
        try:
            for _ in range(8):
                # A sandbox that nobody has woken yet would have nothing to pause.
                before = list(reads)
                until(
                    "a read of each reader",
                    lambda: any(reader.done() for reader in reading)
                    or all(now > then for now, then in zip(reads, before, strict=True)),
                )
                made.pause()
        finally:
            enough.set()
        for reader in reading:
            reader.result()


def test_how_it_ends_is_kept_across_a_pause(make):
    made = make(timeout=100, lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
    assert made.beta_pause()
    made.connect(timeout=100)
    made.set_timeout(3)
    until("its sleep", lambda: made.get_info().state == SandboxState.PAUSED)
    assert pause_mode(made) == "filesystem"


def test_without_that_it_ends(make):
    made = make(timeout=1)
    until("its end", lambda: not made.is_running())
    assert not made.kill()


def test_forks_have_everything_and_go_their_own_ways(make):
    with Interpreter.create(timeout=300, metadata={"who": "parent"}, envs={"E": "1"}) as parent:
        parent.run_code("x = 1")
        children = parent.fork(count=2, timeout=200)
        try:
            assert len({sandbox.sandbox_id for sandbox in [parent, *children]}) == 3
            for number, child in enumerate(children):
                assert child.run_code(f"x += {number}; x").text == str(1 + number)
                assert child.get_info().metadata == {"who": "parent"}
                assert child.commands.run("echo $E $E2B_SANDBOX_ID").stdout == f"1 {child.sandbox_id}\n"
                until("the files that name it", lambda: has_its_identity(child, "code-interpreter-v1"))
            assert parent.run_code("x").text == "1"
        finally:
            for child in children:
                child.kill()


def test_a_snapshot_is_a_template(make):
    made = make()
    made.files.write("kept", "before")
    snapshot = made.create_snapshot(name="kept-state")
    made.files.write("kept", "after")
    copy, by_name = make(snapshot.snapshot_id), make("kept-state")
    until("the files that name it", lambda: has_its_identity(by_name, "kept-state"))
    assert copy.files.read("kept") == by_name.files.read("kept") == "before" and made.files.read("kept") == "after"
    assert [found.snapshot_id for found in made.list_snapshots().next_items()] == [snapshot.snapshot_id]
    # The name stands for the newest one, under the same id.
    assert made.create_snapshot(name="kept-state").snapshot_id == snapshot.snapshot_id
    assert [found.snapshot_id for found in made.list_snapshots().next_items()] == [snapshot.snapshot_id]
    assert make(snapshot.snapshot_id).files.read("kept") == "after"
    for name in "code-interpreter-v1", "base":
        with pytest.raises(SandboxException, match="built-in template"):
            made.create_snapshot(name=name)
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert copy.files.read("kept") == "before"


def test_a_snapshot_of_the_file_system_boots(make):
    made = make()
    made.files.write("kept", "text")
    background = "sleep 1000 >/dev/null 2>&1 & echo started"
    assert made.commands.run(background).stdout == "started\n"
    snapshot = made.create_snapshot(mode="filesystem")
    assert made.commands.run("pgrep -c -x sleep").stdout == "1\n"
    copy = make(snapshot.snapshot_id)
    assert copy.files.read("kept") == "text"
    assert copy.commands.run("pgrep -c -x sleep || true").stdout == "0\n"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_a_snapshot_of_one_that_sleeps_leaves_it_asleep(make):
    made = make()
    made.files.write("kept", "text")
    made.pause()
    snapshot = Sandbox.create_snapshot(made.sandbox_id)
    assert made.get_info().state == SandboxState.PAUSED
    assert make(snapshot.snapshot_id).files.read("kept") == "text"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)
