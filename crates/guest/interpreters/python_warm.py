"""Loads in advance what the first user would otherwise wait for."""

import importlib
import io
import os

# The modules that model-written code imports most.
WARM_MODULES = (
    "argparse asyncio base64 bisect collections concurrent.futures contextlib copy csv dataclasses datetime decimal "
    "enum fractions functools glob hashlib heapq html http.client importlib.util inspect io itertools json linecache "
    "logging math multiprocessing operator pathlib pickle platform pprint queue random re secrets shutil sqlite3 ssl "
    "statistics string struct subprocess tempfile textwrap threading traceback typing unittest urllib.parse "
    "urllib.request uuid warnings weakref zipfile"
).split()


def warm(imports):
    """Imports modules and uses some of them once. Returns the names of those that could not be imported."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in WARM_MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # Debian ships parts of the standard library in packages of their own.
            pass
    failed = []
    for name in imports:
        try:
            importlib.import_module(name)
            FIRST_USES.get(name, lambda: None)()
        except Exception:
            failed.append(name)
    return failed


def _first_use_of_numpy():
    import numpy

    repr(numpy.linalg.inv(numpy.random.rand(3, 3)))


def _first_use_of_pandas():
    import pandas

    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    repr(frame), frame._repr_html_(), repr(frame.groupby("b").sum()), repr(frame.describe())
    pandas.read_csv(io.StringIO(frame.to_csv()))


def _first_use_of_matplotlib():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2], label="x")
    axes.set_title("x")
    axes.legend()
    figure.savefig(io.BytesIO(), format="png", bbox_inches="tight")
    pyplot.close(figure)


FIRST_USES = {
    "numpy": _first_use_of_numpy,
    "pandas": _first_use_of_pandas,
    "matplotlib": _first_use_of_matplotlib,
    "matplotlib.pyplot": _first_use_of_matplotlib,
}
