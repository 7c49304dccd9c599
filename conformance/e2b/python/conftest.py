"""Sandboxes for the tests. Whatever is made here is ended here."""

import pytest
from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter


@pytest.fixture
def make():
    """Makes a sandbox of the test's own; arguments as for `Sandbox.create`."""
    made = []

    def create(*arguments, **options):
        made.append(Sandbox.create(*arguments, **options))
        return made[-1]

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="session")
def sandbox():
    """Shared by tests that only run commands and write below a directory of their own."""
    with Sandbox.create(timeout=900, envs={"SHARED": "yes"}) as made:
        yield made


@pytest.fixture(scope="session")
def interpreter():
    """Shared by tests of code; has pandas and matplotlib."""
    with Interpreter.create(timeout=900) as made:
        yield made


@pytest.fixture
def place(sandbox, request):
    """A directory of the test's own in the shared sandbox."""
    path = f"/home/user/{request.node.name}"
    sandbox.files.make_dir(path)
    return path
