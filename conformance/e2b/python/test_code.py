"""Code in live interpreters."""

import base64
import time

import pytest
from e2b_code_interpreter import NotFoundException, Sandbox, SandboxException, TimeoutException


def test_variables_last_and_the_value_is_the_main_result(interpreter):
    interpreter.run_code("x = 20")
    execution = interpreter.run_code("print('said'); x + 1")
    assert (execution.text, execution.logs.stdout, execution.error) == ("21", ["said\n"], None)
    assert execution.results[0].is_main_result and execution.execution_count >= 2
    assert interpreter.run_code("'text'").text == "text"
    assert interpreter.run_code("{'a': [1, None]}").results[0].json == {"a": [1, None]}
    assert interpreter.run_code("import os; os.getcwd()").text == "/home/user"


def test_an_error_is_data(interpreter):
    execution = interpreter.run_code("print('before')\n1 / 0")
    assert execution.logs.stdout == ["before\n"] and execution.error.name == "ZeroDivisionError"
    assert "1 / 0" in execution.error.traceback and execution.error.value == "division by zero"
    assert interpreter.run_code("def f(:").error.name == "SyntaxError"


def test_output_comes_as_it_is_made(interpreter):
    out, err, results, errors = [], [], [], []
    interpreter.run_code(
        "import sys\nprint('é')\nprint('no', file=sys.stderr)\ndisplay(1)\nraise ValueError('x')",
        on_stdout=lambda m: out.append(m.line),
        on_stderr=lambda m: err.append(m.line),
        on_result=results.append,
        on_error=errors.append,
    )
    assert "".join(out) == "é\n" and "".join(err) == "no\n"
    assert [result.text for result in results] == ["1"] and not results[0].is_main_result
    assert [error.name for error in errors] == ["ValueError"]


def test_output_is_heard_while_the_code_still_runs(interpreter):
    heard = []
    interpreter.run_code(
        "import time\nprint('early', flush=True)\ntime.sleep(3)",
        on_stdout=lambda message: heard.append((message.line, time.monotonic())),
    )
    [(line, at)] = heard
    assert line == "early\n" and time.monotonic() - at > 1.5


def test_code_for_a_sandbox_that_is_gone_says_why():
    made = Sandbox.create(timeout=120)
    made.kill()
    with pytest.raises(TimeoutException, match="was not found: it was killed"):
        made.run_code("1")


@pytest.mark.parametrize("end", ("kill", "expire"))
def test_code_in_a_sandbox_that_ends_meanwhile_raises(end):
    made = Sandbox.create(timeout=120)
    heard = []

    def on_stdout(message):
        heard.append(message.line)
        made.kill() if end == "kill" else made.set_timeout(1)

    with pytest.raises(TimeoutException, match="killed while the request was in progress"):
        made.run_code("import time; print('begun', flush=True); time.sleep(60)", on_stdout=on_stdout)
    assert heard == ["begun\n"]


def test_code_from_a_notebook_runs(interpreter):
    assert interpreter.run_code("\n    x = 1\n    if x:\n        x += 1\n    x\n").text == "2"
    code = "%matplotlib inline\n%load_ext autoreload\nfrom IPython.display import display, HTML, Markdown\n"
    shown, main = interpreter.run_code(code + "display(Markdown('*m*'))\nHTML('<b>x</b>')").results
    assert (shown.markdown, main.html, main.is_main_result) == ("*m*", "<b>x</b>", True)
    timed = interpreter.run_code("%%time\nget_ipython().system('echo hi')\n6 * 7")
    assert timed.text == "42" and "".join(timed.logs.stdout).startswith("hi\nCPU times")
    assert interpreter.run_code("%nosuch").error.name == "UsageError"


@pytest.mark.parametrize("use", ("image", "image.show()", "image.save('a.png')"))
def test_pictures_of_pillow_are_results(interpreter, use):
    [result] = interpreter.run_code(f"from PIL import Image\nimage = Image.new('RGBA', (8, 8))\n{use}").results
    assert base64.b64decode(result.png).startswith(b"\x89PNG")


def test_variables_of_one_run_are_gone_afterwards(interpreter):
    assert interpreter.run_code("import os; os.environ['ONCE']", envs={"ONCE": "1"}).text == "1"
    assert interpreter.run_code("'ONCE' in os.environ").text == "False"


def test_contexts_are_apart(interpreter):
    context = interpreter.create_code_context(cwd="/tmp")
    interpreter.run_code("import os; mine = os.getcwd()", context=context)
    assert interpreter.run_code("mine", context=context).text == "/tmp"
    assert interpreter.run_code("mine").error.name == "NameError"
    assert (context.id, "python", "/tmp") in [(c.id, c.language, c.cwd) for c in interpreter.list_code_contexts()]
    interpreter.restart_code_context(context)
    assert interpreter.run_code("mine", context=context).error.name == "NameError"
    interpreter.remove_code_context(context)
    with pytest.raises(NotFoundException):
        interpreter.run_code("1", context=context)


def test_other_languages(interpreter):
    assert interpreter.run_code("const a = await Promise.resolve(41); a + 1", language="javascript").text == "42"
    bash = interpreter.run_code("echo $((6 * 7)); exit 3", language="bash")
    assert bash.logs.stdout == ["42\n"] and bash.error.value == "3"
    with pytest.raises(SandboxException, match="no interpreter"):
        interpreter.run_code("1", language="ruby")


@pytest.mark.parametrize("language, package", (("r", "r-base-core"), ("java", "default-jdk-headless")))
def test_a_language_that_the_template_lacks_is_an_error_that_names_the_package(interpreter, language, package):
    error = interpreter.run_code("1", language=language).error
    assert error.name == "InterpreterMissing"
    assert f"`sandling template build NAME --packages {package}`" in error.value
    assert interpreter.create_code_context(language=language).language == language


def test_typescript(interpreter):
    def run(code, **options):
        return interpreter.run_code(code, language="typescript", **options)

    run("interface Point { x: number }\nconst double = <T extends Point>(p: T): number => p.x * 2")
    assert run("const p: Point = { x: 21 }\ndouble<Point>(p)").text == "42"
    assert run("import { sep } from 'path'\nawait Promise.resolve(sep! as string)").text == "/"
    failed = run("const a: number = 1\nthrow new TypeError('no' as string)").error
    assert (failed.name, failed.value) == ("TypeError", "no") and "2:7" in failed.traceback
    assert run("let x: = 1").error.name == "SyntaxError"
    context = interpreter.create_code_context(language="typescript")
    assert context.language == "typescript"
    assert interpreter.run_code("const own: string = 'mine'\nown", context=context).text == "mine"
    assert context.id in [found.id for found in interpreter.list_code_contexts() if found.language == "typescript"]
    interpreter.remove_code_context(context)


def test_a_run_that_takes_too_long_is_interrupted(interpreter):
    with pytest.raises(Exception, match="(?i)timeout|timed out"):
        interpreter.run_code("import time\nkept = 1\ntime.sleep(100)", timeout=3)
    assert interpreter.run_code("kept").text == "1"


def test_tables_and_pictures(interpreter):
    table = interpreter.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', None]})").results[0]
    assert table.data == {"a": [1, 2], "b": ["x", None]} and "<table" in table.html
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], label='l')\nplt.title('T')\nplt.xlabel('time (s)')\nplt.show()"
    [picture] = interpreter.run_code(code).results
    assert base64.b64decode(picture.png).startswith(b"\x89PNG")
    chart = picture.chart
    assert (chart.type.value, chart.title, chart.x_label, chart.x_unit) == ("line", "T", "time (s)", "s")
    assert chart.elements[0].label == "l" and chart.elements[0].points == [(0, 1), (1, 2), (2, 3)]


SHAPES = {
    "svg": "'<svg xmlns=\"http://www.w3.org/2000/svg\"/>'",
    "markdown": "'# head'",
    "latex": "'$x^2$'",
    "html": "'<b>x</b>'",
    "jpeg": "b'\\xff\\xd8\\xff\\xe0'",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_object_shows_itself_in_many_ways(interpreter, shape):
    code = f"class Shown:\n    def _repr_{shape}_(self):\n        return {SHAPES[shape]}\nShown()"
    [result] = interpreter.run_code(code).results
    shown = getattr(result, shape)
    assert result.is_main_result and shown
    if shape == "jpeg":
        assert base64.b64decode(shown) == b"\xff\xd8\xff\xe0"
    else:
        assert shown == eval(SHAPES[shape])


CHARTS = {
    "bar": (
        "plt.bar(['a', 'b'], [3, 4], label='g')",
        lambda found: [(bar.label, bar.group, bar.value) for bar in found] == [("a", "g", 3), ("b", "g", 4)],
    ),
    "pie": (
        "plt.pie([1, 3], labels=['a', 'b'])",
        lambda found: [(part.label, part.angle, part.radius) for part in found] == [("a", 90, 1), ("b", 270, 1)],
    ),
    "scatter": (
        "plt.scatter([1, 2], [3, 4], label='s')",
        lambda found: [(group.label, group.points) for group in found] == [("s", [(1, 3), (2, 4)])],
    ),
    "box_and_whisker": (
        "plt.boxplot([[1, 2, 3, 4, 5, 30], [2, 4, 6]], tick_labels=['a', 'b'])",
        lambda found: [(b.label, b.min, b.median, b.max, b.outliers) for b in found]
        == [("a", 1, 3.5, 5, [30]), ("b", 2, 4, 6, [])],
    ),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_charts_are_data(interpreter, kind):
    code, is_right = CHARTS[kind]
    results = interpreter.run_code(f"import matplotlib.pyplot as plt\nplt.figure()\n{code}\nplt.show()").results
    chart = results[-1].chart
    assert chart.type.value == kind and is_right(chart.elements), chart.to_dict()


@pytest.mark.parametrize("draw", ("plot", "scatter"))
def test_charts_may_have_texts_on_an_axis(interpreter, draw):
    code = f"import matplotlib.pyplot as plt\nplt.{draw}([0, 1], ['A', 'B']); plt.show()"
    chart = interpreter.run_code(code).results[0].chart
    assert (chart.x_scale, chart.y_scale, chart.y_ticks) == ("linear", "categorical", ["A", "B"])
    assert all(isinstance(tick, float) for tick in chart.x_ticks)
    assert chart.elements[0].points == [(0, "A"), (1, "B")]


def test_boxes_that_are_drawn_again_count_once(interpreter):
    code = "data = [[1, 2, 3, 4, 5, 30], [2, 4, 6]]\nplt.boxplot(data)\nplt.boxplot(data, patch_artist=True)\nplt.show()"
    chart = interpreter.run_code(f"import matplotlib.pyplot as plt\nplt.figure()\n{code}").results[0].chart
    assert [(box.median, box.outliers) for box in chart.elements] == [(3.5, [30]), (4, [])], chart.to_dict()


def test_several_axes_are_one_superchart(interpreter):
    code = "f, (a, b) = plt.subplots(1, 2); a.plot([1]); b.bar(['x'], [1]); f.suptitle('both'); plt.show()"
    [result] = interpreter.run_code(f"import matplotlib.pyplot as plt\n{code}").results
    assert result.chart.title == "both" and [chart.type.value for chart in result.chart.elements] == ["line", "bar"]
