"""What PandaStack's client calls :mod:`sandling.errors`."""

from __future__ import annotations

from .errors import *  # noqa: F403
