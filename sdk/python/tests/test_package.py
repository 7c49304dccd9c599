"""The package itself: its two clients, its names and its import time."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sandling
from sandling.toolkit import SPECS

ROOT = Path(__file__).resolve().parent.parent


def test_the_blocking_half_is_what_the_async_half_says() -> None:
    spec = importlib.util.spec_from_file_location("generate_sync", ROOT / "scripts" / "generate_sync.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.stale() == []


def test_every_exported_name_is_there_and_typed() -> None:
    for name in sandling.__all__:
        assert getattr(sandling, name) is not None
    tree = ast.parse(Path(str(sandling.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname or alias.name for node in block.body for alias in node.names}  # type: ignore[attr-defined]
    assert typed == set(sandling.__all__) - {"__version__"}


def test_the_import_does_not_bring_httpx() -> None:
    code = "import sys, sandling; from sandling import Sandbox, AsyncSandbox; print('httpx' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed == "False\n"


def test_an_option_that_does_not_exist_is_refused() -> None:
    for call in (lambda: sandling.Sandbox(flavour="x"), lambda: sandling.AsyncSandbox(flavour="x")):  # type: ignore[call-arg]
        try:
            call()
        except TypeError as error:
            assert "flavour" in str(error)
        else:
            raise AssertionError("it was taken")


def test_tools_have_the_words_of_the_command_line() -> None:
    source = (ROOT.parent.parent / "crates" / "tools" / "src" / "spec" / "mod.rs").read_text()
    listed = source[source.index("const SPECS") : source.index("pub struct BadCall")]
    # Rust joins the lines of a string without their indentation.
    words = re.sub(r"\\\n\s+", "", listed)
    found = re.findall(r'name: "(\w+)",\s+description: "(.*?)",\s+arguments: &\[(.*?)\],\s+required', words, re.DOTALL)
    told = {
        name: (about, re.findall(r'\(\s*"(\w+)",\s*"(\w+)",\s*"(.*?)",?\s*\)', arguments))
        for name, about, arguments in found
    }
    assert told == {
        spec.name: (
            spec.description,
            [(name, about["type"], about["description"]) for name, about in spec.properties.items()],
        )
        for spec in SPECS.values()
    }


def test_names_that_pandastacks_guides_import_are_there() -> None:
    pandastack = pytest.importorskip("pandastack")
    pytest.importorskip("pandastack.exceptions")

    from sandling import exceptions

    raised = [name for name, value in vars(pandastack.exceptions).items() if isinstance(value, type)]
    assert len(raised) > 8 and [name for name in raised if not hasattr(exceptions, name)] == []
    documented = ["Client", "Sandbox", "ExecResult", "Template", "TemplateBuild", "Token"]
    assert [name for name in [*documented, *raised] if not hasattr(sandling, name)] == []
    verbs = [name for name in dir(pandastack.Sandbox) if not name.startswith("_")]
    # How a client parses an answer is internal.
    assert {name for name in verbs if not hasattr(sandling.Sandbox, name)} <= {"default_template", "from_dict"}
    for part in ("sandboxes", "snapshots", "tokens", "volumes"):
        theirs, ours = (
            getattr(kind("http://127.0.0.1:1", "key"), part) for kind in (pandastack.Client, sandling.Client)
        )
        assert [name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)] == [], part
