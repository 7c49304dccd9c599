"""Runs one test with both clients."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Callable

import sandling


class Colour:
    """One of the two clients. ``run`` runs a coroutine function that awaits results where necessary."""

    def __init__(self, name: str) -> None:
        self.name = name
        prefix = "Async" if name == "async" else ""
        self.Client = getattr(sandling, f"{prefix}Client")
        self.Sandbox = getattr(sandling, f"{prefix}Sandbox")
        self.SandboxPool = getattr(sandling, f"{prefix}SandboxPool")
        self.Template = getattr(sandling, f"{prefix}Template")
        self.Volume = getattr(sandling, f"{prefix}Volume")

    def run(self, work: Callable[[], Any]) -> Any:
        return asyncio.run(work())


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
