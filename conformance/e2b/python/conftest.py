"""Sandboxes for the tests. Ends everything that it creates."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox, TimeoutException
from e2b_code_interpreter import Sandbox as Interpreter


@pytest.fixture
def make():
    """Creates a sandbox for one test; arguments as for `Sandbox.create`."""
    made = []

    def create(*arguments, **options):
        made.append(Sandbox.create(*arguments, **options))
        return made[-1]

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="session")
def sandbox():
    """Shared by tests that only run commands and write to their own directory."""
    with Sandbox.create(timeout=900, envs={"SHARED": "yes"}) as made:
        yield made


@pytest.fixture(scope="session")
def interpreter():
    """Shared by tests of code; has pandas and matplotlib."""
    with Interpreter.create(timeout=900) as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def unasked():
    """A command without a timeout, started before all tests, and how the wait for it ended."""
    with ThreadPoolExecutor() as beside, Sandbox.create(timeout=900) as made:
        command = made.commands.run("sleep 64; echo lived >lived; sleep 800", background=True)
        yield made, command, beside.submit(refusal, command)


def refusal(command):
    try:
        command.wait()
    except TimeoutException as error:
        return error
    raise AssertionError("the wait was not ended")


@pytest.fixture
def place(sandbox, request):
    """A directory for one test in the shared sandbox."""
    path = f"/home/user/{request.node.name}"
    sandbox.files.make_dir(path)
    return path
