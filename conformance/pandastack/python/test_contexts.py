"""Code contexts: interpreters whose variables last, and rich results."""

import base64
import time
from concurrent.futures import ThreadPoolExecutor

import pandastack
import pytest

from support.wire import call


@pytest.fixture(scope="module")
def context(interpreter):
    with interpreter.create_code_context() as context:
        yield context


@pytest.fixture
def fresh(interpreter):
    with interpreter.create_code_context() as context:
        yield context


def test_variables_imports_and_functions_last_from_cell_to_cell(fresh):
    fresh.run_code("import math\nx = 41\ndef add(n):\n    return x + n")
    cell = fresh.run_code("print(add(1)); math.floor(2.5)")
    assert (cell.stdout, cell.text, cell.exit_code, cell.error) == ("42\n", "2", 0, None)


def test_stdout_and_stderr_come_apart(context):
    cell = context.run_code("import sys; print('out'); print('err', file=sys.stderr)")
    assert (cell.logs["stdout"], cell.logs["stderr"]) == ("out\n", "err\n")


def test_a_cell_without_a_value_has_no_result(context):
    cell = context.run_code("y = 1")
    assert (cell.results, cell.text, cell.png) == ([], None, None)


def test_the_value_of_the_last_expression_is_a_result(context):
    [result] = context.run_code("x = 1\n{'a': 'zoë 😀'}").results
    assert result.text == "{'a': 'zoë 😀'}"


def test_an_exception_is_data_and_the_context_goes_on(context):
    cell = context.run_code("print('before')\ndef broken():\n    raise ValueError('why')\nbroken()")
    assert cell.stdout == "before\n"
    assert "Traceback" in cell.error and "ValueError: why" in cell.error and "broken" in cell.error
    assert cell.exit_code != 0
    assert context.run_code("1 + 1").text == "2"


def test_a_syntax_error_is_data(context):
    cell = context.run_code("def (:")
    assert "SyntaxError" in cell.error and cell.exit_code != 0


def test_a_figure_is_a_png(context):
    cell = context.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert cell.error is None
    assert base64.b64decode(cell.png).startswith(b"\x89PNG\r\n\x1a\n")
    assert any(result.chart == cell.png for result in cell.results)


def test_a_data_frame_is_html_and_text(context):
    cell = context.run_code("import pandas as pd\npd.DataFrame({'größe': [1, 2]})")
    [result] = cell.results
    assert "<table" in result.html and "größe" in result.html
    assert "größe" in result.text


@pytest.mark.parametrize("method, value, accessor, expected", [
    ("_repr_svg_", "'<svg/>'", "svg", "<svg/>"),
    ("_repr_markdown_", "'# zoë'", "markdown", "# zoë"),
    ("_repr_json_", "{'a': [1, None]}", "json", {"a": [1, None]}),
    ("_repr_html_", "'<b>x</b>'", "html", "<b>x</b>"),
    ("_repr_jpeg_", "b'\\xff\\xd8'", "jpeg", base64.b64encode(b"\xff\xd8").decode()),
])
def test_an_object_shows_itself_as_it_wishes(context, method, value, accessor, expected):
    cell = context.run_code(f"class Shown:\n    def {method}(self):\n        return {value}\nShown()")
    assert expected in [getattr(result, accessor) for result in cell.results]


def test_text_in_any_script_does_not_confuse_it(context):
    for n in range(3):
        cell = context.run_code(f"s = 'zoë ☃ 日本語 😀'\nprint(s, {n})")
        assert cell.stdout == f"zoë ☃ 日本語 😀 {n}\n"


def test_the_output_of_child_processes_does_not_confuse_it(context):
    cell = context.run_code("import os, subprocess\nos.system('echo from a child')\nsubprocess.run(['echo', 'two'])\n7")
    assert cell.text == "7"
    assert "from a child\n" in cell.stdout and "two\n" in cell.stdout
    cell = context.run_code("os.write(1, b'raw\\n'); os.write(2, b'raw err\\n'); print('next')")
    assert "next\n" in cell.stdout and "raw\n" in cell.stdout and "raw err\n" in cell.stderr
    assert context.run_code("'own'").text == "'own'"


def test_a_deadline_ends_the_cell_and_the_context_goes_on(fresh):
    started = time.monotonic()
    with pytest.raises(pandastack.SandboxTimeout):
        fresh.run_code("while True:\n    pass", timeout_seconds=2)
    assert time.monotonic() - started < 15
    assert fresh.run_code("1 + 1", timeout_seconds=30).text == "2"


def test_reading_input_does_not_hang_the_context(fresh):
    cell = fresh.run_code("input()", timeout_seconds=20)
    assert "EOFError" in cell.error or "StdinNotImplementedError" in cell.error
    assert fresh.run_code("1 + 1").text == "2"


def test_an_interpreter_that_ends_itself_does_not_take_the_context_along(fresh):
    cell = fresh.run_code("import os\nos._exit(3)", timeout_seconds=30)
    assert cell.error and cell.exit_code != 0
    assert fresh.run_code("1 + 1", timeout_seconds=30).text == "2"


def test_contexts_do_not_share_variables(interpreter):
    with interpreter.create_code_context() as one, interpreter.create_code_context("py") as two:
        assert one.id != two.id
        one.run_code("secret = 1")
        assert "NameError" in two.run_code("secret").error


def test_contexts_run_at_once(interpreter):
    contexts = [interpreter.create_code_context("python3") for _ in range(2)]
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        cells = list(pool.map(lambda context: context.run_code("import time; time.sleep(4); 1"), contexts))
    assert [cell.text for cell in cells] == ["1", "1"]
    assert time.monotonic() - started < 7.5, "one waited for the other"
    for context in contexts:
        context.close()


def test_a_closed_context_is_not_found(interpreter):
    with interpreter.create_code_context() as context:
        context.run_code("1")
    with pytest.raises(pandastack.NotFoundError):
        context.run_code("1")
    context.close()


def test_a_language_that_is_not_there_is_refused(interpreter):
    with pytest.raises(pandastack.BadRequestError):
        interpreter.create_code_context("cobol")


def test_the_wire_is_as_both_clients_read_it(interpreter):
    base = f"/v1/sandboxes/{interpreter.id}/repl/sessions"
    made = call("POST", base, body={"language": "python"})
    assert made.status == 201
    session = made.json()
    assert session["id"] and session["language"] == "python" and session["sandbox_id"] == interpreter.id
    ran = call("POST", f"{base}/{session['id']}/run", body={"code": "print('x')\n6 * 7"})
    assert ran.status == 200
    cell = ran.json()
    assert (cell["stdout"], cell["stderr"], cell.get("exit", cell.get("exit_code"))) == ("x\n", "", 0)
    assert not cell.get("error")
    assert type(cell["duration_ms"]) is int
    late = call("POST", f"{base}/{session['id']}/run", body={"code": "while True: pass", "timeout_ms": 1000})
    assert late.status == 504 and "timeout" in late.error.lower()
    assert session["id"] in [listed["id"] for listed in call("GET", base).json()]
    closed = call("DELETE", f"{base}/{session['id']}")
    assert (closed.status, closed.body) == (204, b"")
    assert call("DELETE", f"{base}/{session['id']}").status == 404
    gone = call("POST", f"{base}/{session['id']}/run", body={"code": "1"})
    assert gone.status == 404 and gone.error


@pytest.mark.parametrize("body", [{}, {"code": 1}, {"code": "1", "timeout_ms": -5}, b"{"], ids=repr)
def test_a_bad_cell_is_a_400(interpreter, context, body):
    path = f"/v1/sandboxes/{interpreter.id}/repl/sessions/{context.id}/run"
    answer = call("POST", path, body=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400 and answer.error
