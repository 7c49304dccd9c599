"""Tokens of the default client as module functions: ``tokens.list()``. PandaStack's client has this name."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from ._sync.client import Tokens, get_default_client

    if name.startswith("_") or not hasattr(Tokens, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(get_default_client().tokens, name)
