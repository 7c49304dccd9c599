"""The name of :mod:`sandling.errors` in PandaStack's client."""

from __future__ import annotations

from .errors import *  # noqa: F403
from .errors import ConnectionError as APIConnectionError  # noqa: F401
from .errors import SandlingError as PandastackError  # noqa: F401
