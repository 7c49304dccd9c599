#!/usr/bin/env python3
"""Checks that every test that SECURITY.md names exists.

A name in the page is a test if it is in backquotes in the section "Tests" or follows "Test:" or "Tests:".
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = re.compile(r"`([a-z][a-z0-9_]{11,})`")


def named(page):
    """The tests that the page names."""
    section = page.split("\n## Tests\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.rsplit("|", 2)[1] for line in section.splitlines() if line.startswith("|")]
    sentences = re.findall(r"Tests?:((?:\s*`[^`]+`,?)+)", page)
    return {name for text in rows + sentences for name in NAME.findall(text)}


def known():
    """The functions in the tree that are tests, in Rust and Python."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.rs", "*.py"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.split("\0")
    attribute = re.compile(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
    python = re.compile(r"^\s*(?:async )?def (test_\w+)", re.M)
    # A program with its own `main` has a list of its tests.
    listed = re.compile(r'\(\s*"(\w+)",\s*(?:\w+::)*\1,?\s*\)')
    # Tests in a network namespace of their own are the functions in the macro `isolated`.
    isolated = re.compile(r"^    async fn (\w+)\(\) \{", re.M)
    found = set()
    for path in filter(None, files):
        text = (ROOT / path).read_text()
        found.update(python.findall(text) if path.endswith(".py") else attribute.findall(text))
        found.update(listed.findall(text))
        for block in re.findall(r"^isolated! \{\n(.*?)^\}", text, re.M | re.S):
            found.update(isolated.findall(block))
    return found


def main():
    tests = named((ROOT / "SECURITY.md").read_text())
    missing = sorted(tests - known())
    for name in missing:
        print(f"SECURITY.md names the test {name}, which does not exist", file=sys.stderr)
    print(f"SECURITY.md names {len(tests)} tests, {len(missing)} of them missing")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
