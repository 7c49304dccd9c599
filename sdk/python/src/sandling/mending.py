"""Repairs a model's messages so that they can be stored and sent: lone surrogates, invalid numbers, deep nesting.

No I/O.
"""

from __future__ import annotations

import json
import math
from typing import Any, List, Mapping, Union

#: Deeper nesting is not traversed: it would overflow the stack, here or in the receiver.
DEEPEST = 32


def paired(text: str) -> str:
    """Joins surrogate pairs that arrived separately. A lone surrogate stays."""
    return text if is_whole(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def is_whole(text: str) -> bool:
    """Whether all characters can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def flat(arguments: Union[str, Mapping[str, Any]]) -> Union[str, Mapping[str, Any]]:
    """The arguments of a call, as text if they are nested too deeply."""
    level: List[Any] = [arguments]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return arguments
    try:
        return json.dumps(arguments)
    except RecursionError:
        return "[" * DEEPEST


def _inside(value: Any) -> List[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def mended(value: Any, depth: int = 0) -> Any:
    """The same value, with parts that cannot be sent replaced. Objects of an SDK are changed in place."""
    if isinstance(value, str):
        return value if is_whole(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {mended(name): mended(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [mended(inner, depth + 1) for inner in value]
    if hasattr(value, "model_dump"):
        for fields in (vars(value), getattr(value, "model_extra", None) or {}):
            fields.update({name: mended(inner, depth + 1) for name, inner in fields.items()})
    return value
