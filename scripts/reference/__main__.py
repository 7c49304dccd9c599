"""Writes docs/reference from the code.

    python3 scripts/reference SANDLING            writes the pages
    python3 scripts/reference --check SANDLING    exits with 1 if they are out of date

SANDLING is the path of the binary, which prints its commands and tools. The TypeScript page needs `npm install` in
sdk/typescript.
"""

from __future__ import annotations

import sys
from pathlib import Path

import of_cli
import of_http
import of_mcp
import of_python
import of_typescript

ROOT = Path(__file__).resolve().parent.parent.parent
NOTE = "<!-- Generated from the code by scripts/reference. Do not edit. -->\n"


def main() -> int:
    checking, arguments = "--check" in sys.argv, [word for word in sys.argv[1:] if word != "--check"]
    sandling = Path(arguments[0]).resolve()
    pages = {
        "python": of_python.page(ROOT / "sdk/python/src/sandling"),
        "typescript": of_typescript.page(ROOT / "sdk/typescript"),
        "cli": of_cli.page(sandling),
        "http": of_http.page(ROOT / "docs/openapi.json"),
        "mcp": of_mcp.page(sandling),
    }
    stale = 0
    for name, page in pages.items():
        path, text = ROOT / "docs/reference" / f"{name}.md", NOTE + page
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if checking:
            print(f"docs/reference/{name}.md is out of date: run scripts/reference", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote docs/reference/{name}.md")
    return 1 if checking and stale else 0


if __name__ == "__main__":
    sys.exit(main())
