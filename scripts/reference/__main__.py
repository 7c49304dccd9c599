"""Writes docs/reference from the code.

    python3 scripts/reference SANDLING            writes the pages
    python3 scripts/reference --check SANDLING    ends with 1 if they are not what would be written

SANDLING is the path of the binary, which is asked for its commands and its tools. The TypeScript page needs what `npm
install` in sdk/typescript brings.
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
NOTE = "<!-- Made from the code by scripts/reference. Change that, not this. -->\n"


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
            print(f"docs/reference/{name}.md is not what the code says: run scripts/reference", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote docs/reference/{name}.md")
    return 1 if checking and stale else 0


if __name__ == "__main__":
    sys.exit(main())
