"""Compares results with the expectations of a case, and replaces references to named results."""

from __future__ import annotations

import re
from typing import Any, Mapping

REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def resolve(value: Any, named: Mapping[str, Any]) -> Any:
    """Replaces ``${name.field}`` with fields of named results."""
    if isinstance(value, dict):
        return {key: resolve(item, named) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, named) for item in value]
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: str(look_up(found.group(1), named)), value)
    return value


def look_up(path: str, named: Mapping[str, Any]) -> Any:
    first, *rest = path.split(".")
    value = named[first]
    for key in rest:
        value = value[int(key)] if isinstance(value, list) else field(value, key)
    return value


def field(value: Any, key: str) -> Any:
    return value[key] if isinstance(value, dict) else getattr(value, key)


def difference(expected: Any, real: Any, where: str = "it") -> str:
    """A description of the first difference; empty if there is none."""
    if isinstance(expected, dict):
        special = [key for key in expected if key.startswith("$")]
        if special:
            return _special(special[0], expected[special[0]], real, where)
        if not isinstance(real, dict):
            return f"{where} is {real!r}, not an object"
        return _first(difference(item, real.get(key), f"{where}.{key}") for key, item in expected.items())
    if isinstance(expected, list):
        if not isinstance(real, list) or len(real) != len(expected):
            return f"{where} is {real!r}, not {expected!r}"
        return _first(difference(item, real[i], f"{where}[{i}]") for i, item in enumerate(expected))
    return "" if type(expected) is type(real) and expected == real else f"{where} is {real!r}, not {expected!r}"


def _special(word: str, wanted: Any, real: Any, where: str) -> str:
    checks = {
        "$matches": lambda: isinstance(real, str) and re.search(wanted, real),
        "$atLeast": lambda: isinstance(real, (int, float)) and real >= wanted,
        "$length": lambda: len(real) == wanted,
        "$not": lambda: difference(wanted, real),
        "$contains": lambda: (
            wanted in real if isinstance(real, str) else any(not difference(wanted, item) for item in real)
        ),
    }
    return "" if checks[word]() else f"{where} is {real!r}, which is not {word} {wanted!r}"


def _first(problems: Any) -> str:
    return next((problem for problem in problems if problem), "")
