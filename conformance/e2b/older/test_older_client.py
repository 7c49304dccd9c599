"""The oldest client that variables alone can redirect. It uses other routes and sends unexpected headers."""

import pytest
from e2b import CommandExitException, Sandbox


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(timeout=300) as made:
        yield made


def test_commands_and_files(sandbox):
    assert sandbox.commands.run("echo $HOME; id -un").stdout == "/home/user\nuser\n"
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("echo no >&2; exit 3")
    assert (caught.value.exit_code, caught.value.stderr) == (3, "no\n")
    sandbox.files.write("a/b.txt", "text")
    assert sandbox.files.read("/home/user/a/b.txt") == "text"
    assert [entry.name for entry in sandbox.files.list("a")] == ["b.txt"]


def test_connect_and_list(sandbox):
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("cat a/b.txt").stdout == "text"
    assert sandbox.sandbox_id in [info.sandbox_id for info in Sandbox.list().next_items()]
    sandbox.set_timeout(200)
    assert sandbox.is_running()
