"""Templates of the default client as module functions: ``templates.list()``. PandaStack's client has this name."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from ._sync.client import get_default_client
    from ._sync.templates import Templates

    if name.startswith("_") or not hasattr(Templates, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(get_default_client().templates, name)
