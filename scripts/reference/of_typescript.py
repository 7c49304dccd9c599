"""The page of the TypeScript SDK. typescript.mjs reads the source with the compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path


def page(package: Path) -> str:
    script = Path(__file__).parent / "typescript.mjs"
    return subprocess.run(["node", script, package], check=True, capture_output=True, text=True).stdout
