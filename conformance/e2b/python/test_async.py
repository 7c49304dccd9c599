"""The same with the async client."""

import asyncio

from e2b import AsyncSandbox
from e2b_code_interpreter import AsyncSandbox as AsyncInterpreter


def test_commands_files_and_changes():
    async def use():
        sandbox = await AsyncSandbox.create(timeout=300)
        try:
            results = await asyncio.gather(*(sandbox.commands.run(f"echo {number}") for number in range(3)))
            assert [result.stdout for result in results] == ["0\n", "1\n", "2\n"]
            seen = asyncio.Event()
            await sandbox.files.make_dir("watched")
            watch = await sandbox.files.watch_dir("watched", on_event=lambda event: seen.set())
            await sandbox.files.write("watched/file", "text")
            await asyncio.wait_for(seen.wait(), 30)
            await watch.stop()
            assert await sandbox.files.read("watched/file") == "text"
            assert await sandbox.is_running()
        finally:
            assert await sandbox.kill()

    asyncio.run(use())


def test_code():
    async def use():
        sandbox = await AsyncInterpreter.create(timeout=300)
        try:
            out = []
            execution = await sandbox.run_code("print('é'); 6 * 7", on_stdout=lambda message: out.append(message.line))
            assert (execution.text, "".join(out)) == ("42", "é\n")
        finally:
            await sandbox.kill()

    asyncio.run(use())
