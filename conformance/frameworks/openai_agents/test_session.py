"""What the Agents SDK expects of a sandbox client and its sessions, through its own base classes and tools."""

import asyncio
import io
import re
import urllib.request
from pathlib import Path

import pytest
from agents.sandbox import Manifest
from agents.sandbox.capabilities.tools.shell_tool import (
    ExecCommandArgs,
    ExecCommandTool,
    WriteStdinArgs,
    WriteStdinTool,
)
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, InvalidManifestPathError, WorkspaceReadNotFoundError
from agents.sandbox.snapshot import LocalSnapshotSpec
from sandling import Client, NotFoundError, Sandbox
from sandling.openai_agents import SandlingSandboxClient, SandlingSandboxClientOptions

BASE = SandlingSandboxClientOptions(template="base", ttl_seconds=600)


def run(work):
    """Runs work in an event loop of its own, as a program does."""
    return asyncio.run(work())


def test_commands_files_and_a_manifest():
    async def work():
        manifest = Manifest(
            entries={"notes/hello.txt": File(content=b"hello")}, environment={"value": {"COLOR": "blue"}}
        )
        async with await SandlingSandboxClient().create(manifest=manifest, options=BASE) as session:
            assert await session.running()
            ran = await session.exec("cat notes/hello.txt; echo $COLOR in $PWD; echo oops >&2; exit 3")
            assert (ran.stdout, ran.stderr, ran.exit_code) == (b"helloblue in /workspace\n", b"oops\n", 3)
            assert (await session.exec("no-such-program", shell=False)).exit_code == 127
            assert (await session.exec("id", "-un", user="nobody")).stdout == b"nobody\n"
            with pytest.raises(ExecTimeoutError):
                await session.exec("sleep 60", timeout=1)

            data = bytes(range(256))
            await session.write(Path("deep/er/data"), io.BytesIO(data))
            assert (await session.read(Path("deep/er/data"))).read() == data
            assert await session.read_bounded(Path("deep/er/data"), max_bytes=3) == data[:3]
            await session.write(Path("empty"), io.BytesIO(b""))
            assert await session.read_bounded(Path("empty"), max_bytes=3) == b""
            assert {Path(entry.path).name for entry in await session.ls(".")} >= {"deep", "notes", "empty"}
            await session.mkdir("made/twice", parents=True)
            await session.mv("empty", "made/moved")
            await session.rm("deep", recursive=True)
            with pytest.raises(WorkspaceReadNotFoundError):
                await session.read(Path("deep/er/data"))

            # The workspace is the boundary, for links that leave it, too.
            await session.exec("ln -s /etc out")
            for outside in ("/etc/passwd", "../etc/passwd", "out/passwd"):
                with pytest.raises(InvalidManifestPathError):
                    await session.read(Path(outside))
        assert not await session.running()

    run(work)


def test_a_patch_is_applied():
    async def work():
        async with await SandlingSandboxClient().create(options=BASE) as session:
            create = {"type": "create_file", "path": "a/poem.txt", "diff": "+roses\n+violets\n"}
            update = {"type": "update_file", "path": "a/poem.txt", "diff": "@@\n-roses\n+tulips\n violets\n"}
            await session.apply_patch([create])
            await session.apply_patch([update])
            assert (await session.read(Path("a/poem.txt"))).read().splitlines() == [b"tulips", b"violets"]

    run(work)


def test_an_agent_types_into_a_terminal_and_leaves_a_command_running():
    async def work():
        async with await SandlingSandboxClient().create(options=BASE) as session:
            start, write = ExecCommandTool(session=session), WriteStdinTool(session=session)
            asked = await start.run(
                ExecCommandArgs(
                    cmd="test -t 0 && read -p 'name? ' n; echo hello $n", tty=True, shell="bash", yield_time_ms=3000
                )
            )
            number = int(re.search(r"session ID (\d+)", asked).group(1))
            assert "name? " in asked
            answered = await write.run(WriteStdinArgs(session_id=number, chars="Ada\n", yield_time_ms=5000))
            assert "hello Ada" in answered and "exited with code 0" in answered
            assert "not found" in await write.run(WriteStdinArgs(session_id=number, chars="more\n"))

            slow = await start.run(ExecCommandArgs(cmd="echo one; sleep 4; echo two >&2; exit 5", yield_time_ms=1000))
            number = int(re.search(r"session ID (\d+)", slow).group(1))
            assert "one" in slow and "two" not in slow
            assert "tty=true" in await write.run(WriteStdinArgs(session_id=number, chars="x"))
            ended = await write.run(WriteStdinArgs(session_id=number, yield_time_ms=20_000))
            assert "two" in ended and "exited with code 5" in ended

            await start.run(ExecCommandArgs(cmd="exec sleep 987", yield_time_ms=300))
            await session._inner.pty_terminate_all()
            assert (await session.exec("pgrep -f '^sleep 987'")).exit_code == 1

    run(work)


def test_a_session_resumes_in_another_process_with_its_sandbox_or_a_new_one(tmp_path):
    client = SandlingSandboxClient()

    async def begin():
        session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path), options=BASE)
        await session.start()
        await session.write(Path("kept.txt"), io.BytesIO(b"kept"))
        await session.exec("chown nobody kept.txt; ln -s kept.txt link; sleep 987 >/dev/null 2>&1 &")
        await session.stop()
        return client.serialize_session_state(session.state)

    async def resume(saved, sleeping):
        async with await client.resume(client.deserialize_session_state(saved)) as session:
            assert (await session.read(Path("link"))).read() == b"kept"
            assert (await session.exec("stat -c %U kept.txt")).stdout == b"nobody\n"
            assert (await session.exec("pgrep -f '^sleep 987'")).exit_code == (0 if sleeping else 1)
            return session.state.sandbox_id

    saved = run(begin)
    assert run(lambda: resume(dict(saved), sleeping=True)) == saved["sandbox_id"]
    # The end of that session ended the sandbox.
    assert run(lambda: resume(dict(saved), sleeping=False)) != saved["sandbox_id"]


def test_a_hibernated_session_keeps_its_processes():
    client = SandlingSandboxClient()

    async def begin():
        options = BASE.model_copy(update={"hibernate_on_exit": True})
        async with await client.create(options=options) as session:
            await session.exec("sleep 987 >/dev/null 2>&1 &")
        await client.delete(session)
        return session.state

    async def resume(state):
        async with await client.resume(state) as session:
            assert (await session.exec("pgrep -f '^sleep 987'")).exit_code == 0

    state = run(begin)
    sandbox = Sandbox.get(state.sandbox_id)
    assert sandbox.status == "hibernated"
    run(lambda: resume(state))
    sandbox.kill()


def test_a_snapshot_of_the_machine_brings_its_processes(tmp_path):
    client = SandlingSandboxClient()

    async def begin():
        options = BASE.model_copy(update={"workspace_persistence": "snapshot", "env": {"COLOR": "blue"}})
        async with await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path), options=options) as session:
            await session.write(Path("kept.txt"), io.BytesIO(b"kept"))
            await session.exec("echo outside >/root/file; sleep 987 >/dev/null 2>&1 &")
        with pytest.raises(NotFoundError):
            Sandbox.get(session.state.sandbox_id)
        return session.state

    async def resume(state):
        async with await client.resume(state) as session:
            assert (await session.read(Path("kept.txt"))).read() == b"kept"
            assert (await session.exec("cat /root/file; echo $COLOR")).stdout == b"outside\nblue\n"
            assert (await session.exec("pgrep -f '^sleep 987'")).exit_code == 0

    state = run(begin)
    run(lambda: resume(state))


def test_a_port_is_reached_from_outside():
    async def work():
        options = BASE.model_copy(update={"exposed_ports": (8000,)})
        async with await SandlingSandboxClient().create(options=options) as session:
            await session.write(Path("index.html"), io.BytesIO(b"from inside"))
            await session.pty_exec_start("python3 -m http.server 8000", yield_time_s=0.3)
            await session.exec(
                "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'; do :; done",
                timeout=60,
            )
            end = await session.resolve_exposed_port(8000)
            # The name is one of *.localhost, which not every resolver knows.
            request = urllib.request.Request(
                f"http://127.0.0.1:{end.port}/?{end.query}", headers={"Host": f"{end.host}:{end.port}"}
            )
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
            return await asyncio.to_thread(lambda: opener.open(request, timeout=30).read())

    assert run(work) == b"from inside"


def test_the_network_policy_and_secrets_are_those_of_the_options():
    async def work():
        network = {"allow": ["example.com"], "secrets": ["AGENTS_KEY"]}
        options = BASE.model_copy(update={"network": network})
        async with await SandlingSandboxClient().create(options=options) as session:
            policy = await session._inner.sandbox.network.get()
            told = (await session.exec("echo $AGENTS_KEY")).stdout.decode()
            return policy, told

    with Client() as admin:
        admin.secrets.set("AGENTS_KEY", "the real key", hosts=["example.com"])
        try:
            policy, told = run(work)
        finally:
            admin.secrets.remove("AGENTS_KEY")
    assert "example.com" in str(policy)
    assert told.strip() and "the real key" not in told
