from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest
from colour import Colour
from fake_server import FakeServer

# For the processes that tests start, too.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return Colour(request.param)
