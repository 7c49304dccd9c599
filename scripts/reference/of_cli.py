"""The page of the command line: the help of each command."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Iterator, List, Tuple

OPENING = """# Commands

The `--help` of each command. [cli.md](../cli.md) says what they have in common.
"""


def page(sandling: Path) -> str:
    parts = [OPENING]
    for words, text in commands(sandling, []):
        level = "#" * (2 + min(len(words), 2))
        parts.append(f"{level if words else '##'} `{' '.join(['sandling', *words])}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def commands(sandling: Path, words: List[str]) -> Iterator[Tuple[List[str], str]]:
    """A command and those below it, each with its help."""
    text = help_of(sandling, words)
    yield words, text
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    for line in listed.group(1).splitlines() if listed else []:
        # Lines with more indentation continue the line before.
        name = re.match(r"  ([a-z][\w-]*)", line)
        if name and name.group(1) != "help":
            yield from commands(sandling, [*words, name.group(1)])


def help_of(sandling: Path, words: List[str]) -> str:
    # The help shows values of environment variables.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDLING_")}
    asked = [str(sandling), *words, "--help"]
    printed = subprocess.run(asked, check=True, capture_output=True, text=True, env={**environment, "COLUMNS": "100"})
    return "\n".join(line.rstrip() for line in printed.stdout.rstrip().splitlines())
