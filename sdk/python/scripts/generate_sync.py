"""Generates ``sandling._sync`` from ``sandling._async``.

    python scripts/generate_sync.py           writes the files
    python scripts/generate_sync.py --check   exits with 1 if they are out of date

``colour`` is written by hand on both sides, because it differs too much.
Needs ``unasync`` and ``ruff``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "sandling"
BY_HAND = {"__init__.py", "colour.py"}
NOTE = "# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.\n"
#: Names for which removing "Async" is not enough.
NAMES = {
    "_async": "_sync",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
    "handle_async_request": "handle_request",
}


def sources() -> list[Path]:
    return sorted(path for path in (PACKAGE / "_async").glob("*.py") if path.name not in BY_HAND)


def replacements(files: list[Path]) -> dict[str, str]:
    found = {name for path in files for name in re.findall(r"\bAsync[A-Z]\w*", path.read_text())}
    return {**{name: name[len("Async") :] for name in found}, **NAMES}


def generate(target: Path) -> None:
    files = sources()
    rule = unasync.Rule(
        fromdir=f"{PACKAGE / '_async'}/", todir=f"{target}/", additional_replacements=replacements(files)
    )
    unasync.unasync_files([str(path) for path in files], [rule])
    made = [target / path.name for path in files]
    for path in made:
        path.write_text(NOTE + path.read_text())
    settings = ["--config", str(PACKAGE.parent.parent / "pyproject.toml")]
    subprocess.run(["ruff", "check", "--quiet", "--select", "I", "--fix", *settings, *made], check=True)
    subprocess.run(["ruff", "format", "--quiet", *settings, *made], check=True)


def stale() -> list[str]:
    """Names of files that differ from what would be written."""
    with tempfile.TemporaryDirectory() as scratch:
        # Named as the real one, so that imports are sorted alike.
        target = Path(scratch) / "sandling" / "_sync"
        target.mkdir(parents=True)
        generate(target)
        present = {path.name for path in (PACKAGE / "_sync").glob("*.py")} - BY_HAND
        wanted = {path.name for path in target.glob("*.py")}
        same = {
            name for name in present & wanted if (target / name).read_text() == (PACKAGE / "_sync" / name).read_text()
        }
        return sorted((present | wanted) - same)


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        names = stale()
        for name in names:
            print(f"_sync/{name} is not what _async says: run scripts/generate_sync.py", file=sys.stderr)
        return 1 if names else 0
    wanted = {path.name for path in sources()} | BY_HAND
    for path in (PACKAGE / "_sync").glob("*.py"):
        if path.name not in wanted:
            path.unlink()
    generate(PACKAGE / "_sync")
    return 0


if __name__ == "__main__":
    sys.exit(main())
