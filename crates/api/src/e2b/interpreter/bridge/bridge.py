"""Runs cells of R and Java in a child process of a Python context. The server sends this file with each such cell.

The child runs a driver, `driver.R` or `Driver.java`, which reads the path of a cell's directory from one pipe and
writes an empty line to the other when the cell has ended. The directory has

    code                                    the source of the cell
    environment                             variables for this cell, one per line: NAME=VALUE, percent-encoded
    value-1.txt, value-2.txt, …             values to show, in this order
    plot-1.png, plot-2.png, …               pictures to show, in this order
    error-name, error-value, error-trace    why the cell failed, if it did

The child writes its output to the context's own descriptors 1 and 2.
"""

import glob
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from urllib.parse import quote

# How long a cell may take to stop after an interrupt, before its process is killed.
GRACE_S = 10
LANGUAGES = {
    "r": {
        "name": "R",
        "program": "R",
        "package": "r-base-core",
        "driver": "driver.R",
        "command": ["R", "--no-echo", "--no-restore", "--no-save", "--file={driver}", "--args", "{cells}", "{ends}"],
    },
    "java": {
        "name": "Java",
        "program": "jshell",
        "package": "default-jdk-headless",
        "driver": "Driver.java",
        # For a faster start.
        "command": ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "{driver}", "{cells}", "{ends}"],
    },
}

# The process of this context, once it was started.
child = None


def run(language, driver, code, environment):
    """Runs a cell. Shows what it made, except for its last value or its error, which the context shows."""
    global child
    settings = LANGUAGES[language]
    if shutil.which(settings["program"]) is None:
        return missing(settings)
    if child is not None and child.process.poll() is not None:
        child = child.close()
    if child is None:
        child = Child(settings, driver)
    with tempfile.TemporaryDirectory(dir=child.folder.name) as cell:
        write(cell, "code", code)
        variables = [f"{quote(name, safe='')}={quote(value, safe='')}\n" for name, value in environment.items()]
        write(cell, "environment", "".join(variables))
        if not child.run(cell):
            failure = child.death()
            child = child.close()
            return failure
        return show(cell)


def missing(settings):
    command = f"sandling template build NAME --packages {settings['package']}"
    value = f"this sandbox has no {settings['name']}: its template lacks the package {settings['package']}; "
    return Failure("InterpreterMissing", f"{value}build one that has it with `{command}`")


def show(cell):
    """Shows the pictures and all values but the last, and returns that one, or the error."""
    *others, last = [Text(read(path)) for path in found(cell, "value-*.txt")] or [None]
    display(*others)  # noqa: F821  The context's own function.
    for path in found(cell, "plot-*.png"):
        with open(path, "rb") as picture:
            display({"image/png": picture.read()}, raw=True)  # noqa: F821
    if not os.path.exists(os.path.join(cell, "error-name")):
        return last
    if last is not None:
        display(last)  # noqa: F821
    return Failure(*[read(os.path.join(cell, f"error-{part}")) for part in ("name", "value", "trace")])


class Child:
    def __init__(self, settings, driver):
        self.settings = settings
        # Only its owner can read a directory that `tempfile` makes.
        self.folder = tempfile.TemporaryDirectory(prefix="sandling-")
        self.interrupted = False
        cells, self.cells = os.pipe()
        self.ends, ends = os.pipe()
        places = {
            "driver": write(self.folder.name, settings["driver"], driver),
            "cells": f"/dev/fd/{cells}",
            "ends": f"/dev/fd/{ends}",
        }
        command = [part.format_map(places) for part in settings["command"]]
        environment = {"LANG": "C.UTF-8", **os.environ}
        self.process = subprocess.Popen(command, env=environment, pass_fds=(cells, ends))
        self.ended = os.pidfd_open(self.process.pid)
        os.close(cells)
        os.close(ends)

    def run(self, cell):
        """Runs a cell; whether the process survived it."""
        self.interrupted = False
        killer = threading.Timer(GRACE_S, self.process.kill)
        killer.daemon = True

        def interrupt(_signal, _frame):
            if not self.interrupted:
                self.interrupted = True
                killer.start()
            self.interrupt()

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            self.tell(cell)
            # A process that the cell started may keep the pipe open, so its end does not show the end of the child.
            ready, _, _ = select.select([self.ends, self.ended], [], [])
            return self.ends in ready and os.read(self.ends, 1) == b"\n"
        finally:
            killer.cancel()
            signal.signal(signal.SIGINT, before)

    def interrupt(self):
        if self.settings["name"] == "Java":
            self.tell("")
        else:
            self.process.send_signal(signal.SIGINT)

    def tell(self, line):
        try:
            os.write(self.cells, line.encode() + b"\n")
        except BrokenPipeError:
            pass  # The process has ended, which `run` is about to notice.

    def close(self):
        """Removes what belonged to the process, which has ended."""
        for fd in (self.cells, self.ends, self.ended):
            os.close(fd)
        self.folder.cleanup()

    def death(self):
        """The error of a cell in which the process ended."""
        status = self.process.wait()
        name = self.settings["name"]
        how = f"with the exit code {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        value = f"{name} ended {how}; it starts anew with the next run, without its variables"
        return Failure("KeyboardInterrupt" if self.interrupted else "UnexpectedEndOfExecution", value)


class Text:
    """A value as the interpreter printed it."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


class Failure:
    """The error of a cell. Raised when the context shows this value, so that the traceback has no frames of Python."""

    def __init__(self, name, value, trace=""):
        self.name, self.value, self.trace = name, value, trace

    def _ipython_display_(self):
        kind = KeyboardInterrupt
        if self.name != kind.__name__:
            kind = type(self.name, (Exception,), {"__module__": "builtins"})
        problem = kind(self.value) if self.value else kind()
        problem.__notes__ = [self.trace] if self.trace else []
        raise problem


def found(cell, pattern):
    """The files of a cell, in the order of their numbers."""
    return sorted(glob.glob(os.path.join(glob.escape(cell), pattern)), key=lambda path: (len(path), path))


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path
