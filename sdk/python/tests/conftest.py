from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from fake_server import FakeServer

import sandling

# For the processes that tests start, too.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


class Colour:
    """One of the two clients. ``run`` carries out a coroutine function that settles what it calls."""

    def __init__(self, name: str) -> None:
        prefix = "Async" if name == "async" else ""
        self.Client = getattr(sandling, f"{prefix}Client")
        self.Sandbox = getattr(sandling, f"{prefix}Sandbox")
        self.Volume = getattr(sandling, f"{prefix}Volume")

    def run(self, work: Callable[[], Any]) -> Any:
        return asyncio.run(work())


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return Colour(request.param)


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
