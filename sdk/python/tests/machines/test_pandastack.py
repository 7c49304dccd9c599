"""Agent patterns written for PandaStack's client work with the import changed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator

import pytest

from sandling import Client

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.py"))
#: The same patterns with calls that only this SDK has.
OWN = sorted((Path(__file__).parent / "examples" / "own").glob("*.py"))
WITHIN = 240


def run(code: str, **more: str) -> None:
    started = [sys.executable, "-c", code]
    environment = {**os.environ, **more}
    done = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def where(client: Client) -> Iterator[Dict[str, str]]:
    endpoint = client._transport.located()
    before = {sandbox.id for sandbox in client.sandboxes.list()}
    yield {"url": endpoint.url, "token": endpoint.token}
    assert {sandbox.id for sandbox in client.sandboxes.list()} == before, "something was left behind"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_with_the_import_changed(example: Path, where: Dict[str, str]) -> None:
    code = example.read_text().replace("from pandastack import", "from sandling import")
    run(code, SANDLING_API=where["url"], SANDLING_TOKEN=where["token"])


@pytest.mark.parametrize("example", OWN, ids=lambda path: path.stem)
def test_in_our_own_words(example: Path, where: Dict[str, str]) -> None:
    run(example.read_text(), SANDLING_API=where["url"], SANDLING_TOKEN=where["token"])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_as_it_is(example: Path, where: Dict[str, str]) -> None:
    """PandaStack's own client runs the same examples."""
    if importlib.util.find_spec("pandastack") is None:
        pytest.skip("there is no module pandastack")
    run(example.read_text(), PANDASTACK_API=where["url"], PANDASTACK_API_KEY=where["token"])
