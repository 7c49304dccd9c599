"""``.dockerignore``: which files of a directory are no part of a template's build."""

from __future__ import annotations

import os
import re
from typing import List, Pattern, Tuple


class DockerIgnore:
    """The patterns of a ``.dockerignore``, in their order."""

    def __init__(self, text: str = "") -> None:
        self._patterns: List[Tuple[bool, Pattern[str]]] = []
        for line in (line.strip() for line in text.lstrip("\ufeff").splitlines()):
            keeps = line.startswith("!")
            parts = _normal_parts(line[1:].strip() if keeps else line)
            if parts and not line.startswith("#"):
                try:
                    self._patterns.append((keeps, _expression(parts)))
                except re.error as error:
                    raise ValueError(f"the line {line!r} of .dockerignore is no pattern: {error}") from None

    @classmethod
    def of(cls, directory: str) -> DockerIgnore:
        try:
            with open(os.path.join(directory, ".dockerignore"), encoding="utf-8") as file:
                return cls(file.read())
        except FileNotFoundError:
            return cls()

    def ignores(self, path: str) -> bool:
        """Whether a path, relative to the directory, is left out.

        The last pattern that matches it, or a directory above it, decides.
        """
        for keeps, expression in reversed(self._patterns):
            if expression.match(path.strip("/") + "/"):
                return not keeps
        return False

    @property
    def has_exceptions(self) -> bool:
        """Whether something below an ignored directory may be a part of the build."""
        return any(keeps for keeps, _ in self._patterns)


def _normal_parts(pattern: str) -> List[str]:
    """Removes ``.``, and goes back for ``..``."""
    parts: List[str] = []
    for part in pattern.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _expression(parts: List[str]) -> Pattern[str]:
    """Matches the beginning of a path that ends with a slash. ``**`` stands for any number of directories."""
    return re.compile("".join("(?:[^/]+/)*" if part == "**" else _part(part) + "/" for part in parts), re.DOTALL)


def _part(pattern: str) -> str:
    tokens = re.findall(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|.", pattern, re.DOTALL)
    return "".join(_token(token) for token in tokens)


def _token(token: str) -> str:
    if token == "*":
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if len(token) > 2 and token.startswith("["):
        negated = token.startswith("[^")
        content = token[2 if negated else 1 : -1].replace("[", r"\[")
        return f"(?!/)[{'^' if negated else ''}{content}]"
    return re.escape(token[1:] if len(token) == 2 else token)
