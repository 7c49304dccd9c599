"""Runs the cases with the Python SDK: ``run.py sync`` or ``run.py async``.

``SANDLING_API`` and ``SANDLING_TOKEN`` name the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import file_verbs  # noqa: F401
from match import difference, look_up, resolve
from verbs import VERBS, plain, settle

import sandling

CASES = Path(__file__).resolve().parent.parent / "cases.json"
SHARED = {"template": "base", "ttl_seconds": 1800}


class Unlike(Exception):
    """A result differs from the expectation."""


class Runner:
    """Runs cases with the blocking or the async SDK."""

    def __init__(self, colour: str) -> None:
        prefix = "Async" if colour == "async" else ""
        self._client_class = getattr(sandling, f"{prefix}Client")
        self.sandbox_class = getattr(sandling, f"{prefix}Sandbox")
        self.volume_class = getattr(sandling, f"{prefix}Volume")
        self.pool_class = getattr(sandling, f"{prefix}SandboxPool")
        self.context_class = getattr(sandling, f"{prefix}CodeContext")
        self.client = self._client_class()
        #: The pools of leased machines, and their audit logs.
        self.lent: Dict[str, Any] = {}
        self._shared: Any = None

    def client_with(self, api_key: str) -> Any:
        return self._client_class(api_key=api_key)

    async def missing(self, case: Dict[str, Any]) -> List[str]:
        """The paths that the case requires and the server lacks."""
        document = await settle(self.client._transport.request("GET", "/openapi.json"))
        return [path for path in case.get("requires", []) if path not in document["paths"]]

    async def run(self, case: Dict[str, Any]) -> None:
        own = case.get("sandbox")
        sandbox = await self._sandbox(own)
        named = {
            "sb": sandbox,
            "client": self.client,
            "stranger": self.client_with("sdl_nobody"),
        }
        try:
            for number, step in enumerate(case["steps"], 1):
                try:
                    await self._step(step, named)
                except Unlike as problem:
                    raise Unlike(f"step {number} ({step['do']}): {problem}") from problem.__cause__
        finally:
            if own:
                await settle(sandbox.close())

    async def close(self) -> None:
        if self._shared is not None:
            await settle(self._shared.close())
        await settle(self.client.aclose() if hasattr(self.client, "aclose") else self.client.close())

    async def _sandbox(self, own: Optional[Dict[str, Any]]) -> Any:
        if own:
            return await settle(self.client.sandboxes.create(**own))
        if self._shared is None:
            self._shared = await settle(self.client.sandboxes.create(**SHARED))
        return self._shared

    async def _step(self, step: Dict[str, Any], named: Dict[str, Any]) -> None:
        target = look_up(step.get("on", "sb"), named)
        arguments = resolve(step.get("with", {}), named)
        wanted_error = resolve(step.get("raises"), named)
        try:
            given = await VERBS[step["do"]](self, target, **arguments)
        except sandling.SandlingError as error:
            self._compare_error(wanted_error, error)
            return
        if wanted_error:
            raise Unlike(f"nothing was raised; it gave {plain(given)!r}")
        if "as" in step:
            named[step["as"]] = given
        if "expect" in step:
            problem = difference(resolve(step["expect"], named), shown(given))
            if problem:
                raise Unlike(problem)

    def _compare_error(self, wanted: Optional[Dict[str, Any]], error: sandling.SandlingError) -> None:
        if not wanted:
            raise Unlike(f"{type(error).__name__}: {error}") from error
        kind = getattr(sandling, wanted["kind"])
        if not isinstance(error, kind):
            raise Unlike(f"{type(error).__name__} is not a {wanted['kind']}: {error}") from error
        rest = {key: value for key, value in wanted.items() if key != "kind"}
        problem = difference(rest, vars(error), "the error")
        if problem:
            raise Unlike(problem) from error


def shown(given: Any) -> Any:
    """The result of a step as plain data. Objects with an ID are shown by their fields."""
    if isinstance(given, list):
        return [shown(item) for item in given]
    data = plain(given)
    return vars(data) if hasattr(data, "__dict__") else data


async def main(colour: str) -> int:
    runner = Runner(colour)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in json.loads(CASES.read_text()):
        if not re.search(os.environ.get("ONLY", ""), case["name"]):
            continue
        started = time.monotonic()
        missing = await runner.missing(case)
        if missing:
            counts["skipped"] += 1
            print(f"skipped  {case['name']} (the server has no {missing[0]})", flush=True)
            continue
        try:
            await runner.run(case)
        except Exception as problem:
            counts["failed"] += 1
            print(
                f"FAILED   {case['name']}: {type(problem).__name__}: {problem}",
                flush=True,
            )
        else:
            counts["passed"] += 1
            print(
                f"passed   {case['name']} ({time.monotonic() - started:.1f} s)",
                flush=True,
            )
    await runner.close()
    print(f"python, {colour}: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
