"""The magics of notebooks that do something, and those that have nothing to do here and are accepted."""

import os
import sys

import python_ipython

# They change how a notebook looks, debugs or loads code, which does not apply here.
NOTHING_TO_DO = frozenset(
    "alias autoawait autocall automagic autoreload autosave colors config doctest_mode gui logoff logon logstart "
    "logstate logstop matplotlib pdb pprint precision rehashx unload_ext xmode".split()
)
SHELL_COMMANDS = frozenset("cat cp echo ll ls man mkdir more mv rm rmdir".split())
INSTALLERS = {"pip": "{python} -m pip", "conda": "conda", "mamba": "mamba", "uv": "uv"}
SHOWN_AS = {
    "html": "HTML",
    "HTML": "HTML",
    "markdown": "Markdown",
    "latex": "Latex",
    "svg": "SVG",
    "SVG": "SVG",
    "javascript": "Javascript",
    "js": "Javascript",
}
UNITS = (("s", 1), ("ms", 1e-3), ("μs", 1e-6), ("ns", 1e-9))


class UsageError(Exception):
    """A magic that does not exist or was used in a wrong way."""


def line_magic(shell, name):
    """The function of `%name`, which takes the rest of the line."""
    if name in shell.magics["line"]:
        return shell.magics["line"][name]
    if name in NOTHING_TO_DO:
        return lambda line: None
    if name in SHELL_COMMANDS:
        return lambda line: shell.system(f"{'ls -l' if name == 'll' else name} {line}")
    if name in INSTALLERS:
        return lambda line: install(shell, name, line)
    if name in LINE_MAGICS:
        return lambda line: LINE_MAGICS[name](shell, line)
    raise UsageError(f"Line magic function `%{name}` not found.")


def cell_magic(shell, name):
    """The function of `%%name`, which takes the rest of the line and the rest of the cell."""
    if name in shell.magics["cell"]:
        return shell.magics["cell"][name]
    if name in CELL_MAGICS:
        return lambda line, cell: CELL_MAGICS[name](shell, line, cell)
    if name in SHOWN_AS:
        return lambda line, cell: python_ipython.display(getattr(python_ipython, SHOWN_AS[name])(cell))
    raise UsageError(f"Cell magic `%%{name}` not found.")


def install(shell, name, line):
    import importlib

    shell.system(f"{INSTALLERS[name].format(python=sys.executable)} {line}")
    importlib.invalidate_caches()


def load_ext(shell, name):
    """Loads an extension that is installed. `autoreload` and its kind come with IPython and have nothing to do."""
    import importlib

    if name in ("autoreload", "storemagic", "tensorboard", "watermark"):
        return
    extension = importlib.import_module(name)
    if hasattr(extension, "load_ipython_extension"):
        extension.load_ipython_extension(shell)


def time_code(shell, line, cell=None):
    """Runs the code once and says how long it took."""
    import time

    wall, cpu = time.perf_counter(), os.times()
    try:
        return shell.run_code(line if cell is None else f"{line}\n{cell}" if line else cell)
    finally:
        wall, end = time.perf_counter() - wall, os.times()
        user, system = end.user - cpu.user, end.system - cpu.system
        print(f"CPU times: user {span(user)}, sys: {span(system)}, total: {span(user + system)}")
        print(f"Wall time: {span(wall)}")


def time_repeatedly(shell, line, cell=None):
    """Runs the code many times and says how long one run takes."""
    import statistics
    import timeit

    options, code = options_of(line, "nr", "oqpt")
    setup, code = (code or "pass", cell) if cell is not None else ("pass", code)
    timer = timeit.Timer(code, setup, globals=shell.user_ns)
    loops = int(options.get("n", 0)) or timer.autorange()[0]
    times = [total / loops for total in timer.repeat(int(options.get("r", 7)), loops)]
    mean, deviation = statistics.fmean(times), statistics.pstdev(times)
    print(
        f"{span(mean)} ± {span(deviation)} per loop (mean ± std. dev. of {len(times)} run{'s' * (len(times) > 1)}, "
        f"{loops:,} loop{'s' * (loops > 1)} each)"
    )


def span(seconds):
    if seconds >= 60:
        return f"{int(seconds // 60)}min {seconds % 60:.0f}s"
    unit, size = next((found for found in UNITS if seconds >= found[1]), UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


def options_of(line, with_value, without):
    """The options at the beginning of the line, such as `-n 10`, and the rest."""
    options = {}
    while line.startswith("-") and line[1:2] and line[1] in with_value + without:
        letter, line = line[1], line[2:].lstrip()
        options[letter] = True
        if letter in with_value:
            value, _, line = line.partition(" ")
            options[letter] = value
        line = line.lstrip()
    return options, line


def environment(shell, line):
    name, separator, value = line.partition("=") if "=" in line else line.partition(" ")
    if not line:
        return dict(os.environ)
    if not separator:
        return os.environ[name]
    os.environ[name.strip()] = value.strip()
    print(f"env: {name.strip()}={value.strip()}")


def change_directory(shell, line):
    os.chdir(os.path.expanduser(line.strip("'\"") or "~"))
    print(os.getcwd())


def names(shell, line=""):
    """The user's own variables."""
    kind = type(sys)
    found = (name for name, value in shell.user_ns.items() if name[:1] != "_" and not isinstance(value, kind))
    return sorted(found)


def list_names(shell, line):
    for name in names(shell):
        print(f"{name}\t{type(shell.user_ns[name]).__name__}")


def run_file(shell, line):
    """Runs a script as `__main__` and keeps its variables."""
    import runpy
    import shlex

    program, *arguments = shlex.split(line)
    before, sys.argv = sys.argv, [program, *arguments]
    try:
        made = runpy.run_path(program, run_name="__main__")
    finally:
        sys.argv = before
    shell.user_ns.update((name, value) for name, value in made.items() if not name.startswith("__"))


def reset(shell, line):
    for name in [name for name in shell.user_ns if not name.startswith("__")]:
        del shell.user_ns[name]


def explain(shell, line):
    import pydoc

    try:
        print(pydoc.render_doc(eval(line, shell.user_ns), renderer=pydoc.plaintext))
    except Exception:
        print(f"Object `{line}` not found.")


def write_file(shell, line, cell):
    options, path = options_of(line, "", "a")
    path = os.path.expanduser(path.strip("'\""))
    exists = os.path.exists(path)
    with open(path, "a" if "a" in options else "w", encoding="utf-8") as file:
        file.write(cell)
    print(f"{'Appending to' if 'a' in options else 'Overwriting' if exists else 'Writing'} {path}")


def script(program):
    """A magic that runs the cell in another program."""

    def run(shell, line, cell):
        import shlex
        import subprocess

        arguments = [program, *shlex.split(line)] if program else shlex.split(line)
        code = subprocess.run(arguments, input=cell.encode()).returncode
        shell.user_ns["_exit_code"] = code
        if code != 0:
            raise subprocess.CalledProcessError(code, arguments)

    return run


def capture(shell, line, cell):
    """Keeps what the cell prints in the variable that the line names."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), shell.displays_kept() as outputs:
        shell.run_code(cell)
    name = line.split()[0] if line.split() else ""
    if name and not name.startswith("-"):
        shell.user_ns[name] = python_ipython.CapturedIO(out.getvalue(), err.getvalue(), outputs)


LINE_MAGICS = {
    "cd": change_directory,
    "env": environment,
    "load_ext": load_ext,
    "lsmagic": lambda shell, line: print(*sorted(LINE_MAGICS), *sorted(CELL_MAGICS)),
    "pinfo": explain,
    "pinfo2": explain,
    "pwd": lambda shell, line: os.getcwd(),
    "pylab": lambda shell, line: exec("from pylab import *", shell.user_ns),
    "reload_ext": load_ext,
    "reset": reset,
    "run": run_file,
    "set_env": environment,
    "sx": lambda shell, line: shell.getoutput(line),
    "system": lambda shell, line: shell.getoutput(line),
    "time": time_code,
    "timeit": time_repeatedly,
    "who": lambda shell, line: print(*names(shell), sep="\t"),
    "who_ls": names,
    "whos": list_names,
}
CELL_MAGICS = {
    "bash": script("bash"),
    "capture": capture,
    "file": write_file,
    "node": script("node"),
    "perl": script("perl"),
    "python": script(sys.executable),
    "python3": script(sys.executable),
    "script": script(None),
    "sh": script("sh"),
    "time": time_code,
    "timeit": time_repeatedly,
    "writefile": write_file,
}
