"""Tracebacks for the user: with the source lines of code that is in no file, without frames of these drivers."""

import io
import linecache
import os
import sys

DRIVER_FOLDER = os.path.dirname(os.path.abspath(__file__))
LIMIT = 1 << 20
# Functions of older cells still run, but their tracebacks show no source lines.
SOURCES_KEPT = 1000

_DRIVER_PREFIX = os.path.join(DRIVER_FOLDER, "python")
_sources = []


def show_source(name, source):
    """Lets tracebacks, warnings and `inspect` show the lines of `source`, compiled under `name`."""
    linecache.cache[name] = (len(source), None, io.StringIO(source + "\n", None).readlines(), name)
    _sources.append(name)
    if len(_sources) > SOURCES_KEPT:
        linecache.cache.pop(_sources.pop(0), None)


def is_driver(frame):
    """Whether the frame belongs to these drivers. Calls no Python code, because signal handlers use it."""
    return frame is not None and frame.f_code.co_filename.startswith(_DRIVER_PREFIX)


def strip(problem):
    """Keeps the frames of the user's code and of what it called."""
    first = problem.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename not in _sources:
        # Skips the frames that lead to the user's code: the drivers' and, between them, the event loop's.
        first = first.tb_next
    trace = first
    while trace is not None and trace.tb_next is not None:
        if not is_driver(trace.tb_next.tb_frame):
            trace = trace.tb_next
        elif isinstance(problem, KeyboardInterrupt):
            trace.tb_next = None
        else:
            trace.tb_next = trace.tb_next.tb_next
    problem.__traceback__ = first
    sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, first
    return problem


def describe(problem):
    """An exception as data."""
    import traceback

    strip(problem)
    try:
        value = str(problem)
    except Exception:
        value = "<exception str() failed>"
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    return {"name": type(problem).__name__, "value": cut(value), "text": cut(text)}


def report(problem):
    """Prints an uncaught exception as the interpreter does."""
    strip(problem)
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(problem), problem, problem.__traceback__)
    elif sys.stderr is not None:
        import traceback

        traceback.print_exception(type(problem), problem, problem.__traceback__)


def cut(text):
    if len(text) <= LIMIT:
        return text
    half = LIMIT // 2
    return f"{text[:half]}\n[{len(text) - LIMIT} characters cut]\n{text[-half:]}"
