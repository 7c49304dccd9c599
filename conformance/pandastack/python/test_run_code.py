"""`run_code`: a command line made by the client."""

import pytest


@pytest.mark.parametrize("language", ["python", "py", "python3", "Python"])
def test_python_runs(sandbox, language):
    assert sandbox.run_code("print(sum(range(101)))", language=language).stdout == "5050\n"


@pytest.mark.parametrize("language", ["shell", "sh", "bash"])
def test_shell_runs_in_bash(sandbox, language):
    assert sandbox.run_code('a=(1 2 3); echo "${#a[@]}"', language=language).stdout == "3\n"


def test_quotes_newlines_and_any_script_survive_the_shell(sandbox):
    code = "s = '''it's \"quoted\" $HOME `id` \\\\ zoë 😀'''\nif s:\n    print(s)\n"
    assert sandbox.run_code(code).stdout == "it's \"quoted\" $HOME `id` \\ zoë 😀\n"


def test_an_exception_is_on_stderr_with_exit_code_1(sandbox):
    result = sandbox.run_code("print('before')\nraise ValueError('why')")
    assert (result.stdout, result.exit_code) == ("before\n", 1)
    assert "ValueError: why" in result.stderr


def test_a_hundred_kilobytes_of_code_run(sandbox):
    assert sandbox.run_code("x = 1\n" * 16_000 + "print(x)").stdout == "1\n"


def test_an_unknown_language_is_refused_by_the_client(sandbox):
    with pytest.raises(ValueError, match="cobol"):
        sandbox.run_code("DISPLAY 'HI'.", language="cobol")
