"""R and Java through E2B's client. All tests of a language use one sandbox, because its first cell starts slowly."""

import base64

import pytest
from e2b_code_interpreter import Sandbox, TimeoutException

TEMPLATE = "r-java"
READ = {"r": "Sys.getenv('%s', unset = 'none')", "java": 'System.getProperty("%s", "none")'}
SHOWN = {"r": '[1] "%s"', "java": "%s"}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(TEMPLATE, timeout=1800, envs={"GIVEN": "to the sandbox"}) as made:
        yield made


@pytest.fixture(params=("r", "java"))
def run(sandbox, request):
    """Runs code in the default context of a language."""

    def run_code(code, **options):
        return sandbox.run_code(code, language=request.param, timeout=300, **options)

    run_code.language = request.param
    return run_code


def test_variables_last_and_the_value_is_the_main_result(run):
    declare = {"r": "x <- 41", "java": "int x = 41;"}[run.language]
    assert (run(declare).error, run(declare).results) == (None, [])
    execution = run("x + 1")
    assert execution.text == {"r": "[1] 42", "java": "42"}[run.language]
    assert execution.results[0].is_main_result


def test_code_runs_in_the_templates_directory(run):
    read = {"r": "getwd()", "java": 'System.getProperty("user.dir")'}[run.language]
    assert run(read).text == SHOWN[run.language] % "/workspace"


def test_variables_of_the_sandbox_and_of_one_run(run):
    given, other = (READ[run.language] % name for name in ("GIVEN", "OTHER"))
    shown = SHOWN[run.language]
    assert run(given, envs={"GIVEN": "to the run"}).text == shown % "to the run"
    assert run(other, envs={"OTHER": "é"}).text == shown % "é"
    assert run(given).text == shown % "to the sandbox"
    assert run(other).text == shown % "none"


def test_output_streams(run):
    heard = []
    code = {
        "r": "print('Hello'); message('told')",
        "java": 'System.out.println("Hello"); System.err.println("told");',
    }[run.language]
    execution = run(code, on_stdout=lambda message: heard.append(message.line))
    assert execution.logs.stdout == {"r": ['[1] "Hello"\n'], "java": ["Hello", "\n"]}[run.language] == heard
    assert execution.logs.stderr == ["told\n"] and execution.results == []


def test_an_error_is_data(run):
    code, name, value, trace = {
        "r": ("f <- function() stop('bad')\nf()", "ERROR", "bad", "1. f()"),
        "java": ("int f() { return 1 / 0; }\nf()", "ArithmeticException", "/ by zero", "at .f("),
    }[run.language]
    error = run(code).error
    assert (error.name, error.value) == (name, value) and trace in error.traceback


def test_a_timeout_interrupts_the_code_and_variables_last(sandbox, run):
    run({"r": "kept <- 1", "java": "int kept = 1;"}[run.language])
    endless = {"r": "repeat {}", "java": "while (true) {}"}[run.language]
    with pytest.raises(TimeoutException):
        sandbox.run_code(endless, language=run.language, timeout=3)
    assert run("kept").text == {"r": "[1] 1", "java": "1"}[run.language]


def test_a_process_that_ended_starts_anew(run):
    execution = run({"r": "quit(status = 3)", "java": "System.exit(3)"}[run.language])
    assert execution.error.name == "UnexpectedEndOfExecution" and "exit code 3" in execution.error.value
    assert run("1 + 1").text == {"r": "[1] 2", "java": "2"}[run.language]


def test_plots_of_r_are_pictures(sandbox):
    execution = sandbox.run_code("plot(1:3); hist(c(1, 2, 2))", language="r")
    assert [base64.b64decode(result.png)[:4] for result in execution.results] == [b"\x89PNG"] * 2


def test_contexts_are_created_restarted_and_removed(sandbox, run):
    context = sandbox.create_code_context(language=run.language, cwd="/tmp")
    assert (context.language, context.cwd) == (run.language, "/tmp")
    assert context.id in [listed.id for listed in sandbox.list_code_contexts()]
    declare, exists = {"r": ("y <- 1", "exists('y')"), "java": ("int y = 1;", "y")}[run.language]
    assert sandbox.run_code(declare, context=context, timeout=300).error is None
    sandbox.restart_code_context(context)
    execution = sandbox.run_code(exists, context=context, timeout=300)
    assert execution.text == "[1] FALSE" if run.language == "r" else execution.error.name == "CompilationException"
    sandbox.remove_code_context(context)
    assert context.id not in [listed.id for listed in sandbox.list_code_contexts()]
