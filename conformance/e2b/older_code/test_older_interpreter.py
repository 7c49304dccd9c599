"""The oldest interpreter package that variables alone can redirect, with the oldest client that it accepts."""

import pytest
from e2b_code_interpreter import Sandbox


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(timeout=300) as made:
        yield made


def test_code_and_contexts(sandbox):
    sandbox.run_code("x = 20")
    execution = sandbox.run_code("print('said'); x + 1")
    assert (execution.text, execution.logs.stdout) == ("21", ["said\n"])
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("1 / 0").error.name == "ZeroDivisionError"


def test_it_is_connected_to_again(sandbox):
    assert Sandbox.connect(sandbox.sandbox_id).run_code("x").text == "20"
