"""Which server to talk to, and with which token.

An argument overrides the environment (``SANDLING_API``, ``SANDLING_TOKEN``). Without either, the client uses the local
server and starts it if necessary (:mod:`sandling.local`). The token in the home is sent only to that server, or to
another server on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

from .errors import ConfigError

API_VARIABLE = "SANDLING_API"
TOKEN_VARIABLE = "SANDLING_TOKEN"
HOME_VARIABLE = "SANDLING_HOME"
#: The server's binary, if it is not on the PATH.
BINARY_VARIABLE = "SANDLING_BINARY"

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class Endpoint(NamedTuple):
    """Where a server is, and the token for it."""

    url: str
    token: str


def shown(url: str) -> str:
    """The URL without its password, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def home() -> Path:
    """The directory where the server keeps its state."""
    if os.environ.get(HOME_VARIABLE):
        return Path(os.environ[HOME_VARIABLE]).absolute()
    if os.environ.get("XDG_DATA_HOME"):
        return Path(os.environ["XDG_DATA_HOME"]).absolute() / "sandling"
    return Path.home() / ".local" / "share" / "sandling"


def home_token() -> Optional[str]:
    """The token that the local server created at its first start."""
    try:
        return (home() / "token").read_text().strip() or None
    except OSError:
        return None


def configured(api_url: Optional[str], api_key: Optional[str]) -> Optional[Endpoint]:
    """The server that an argument or the environment names; ``None`` for the local server."""
    url = api_url or os.environ.get(API_VARIABLE)
    if not url:
        return None
    url = url.rstrip("/")
    if url.endswith("/v1"):
        url = url[: -len("/v1")]
    token = api_key or os.environ.get(TOKEN_VARIABLE)
    if not token and urlsplit(url).hostname in _LOOPBACK:
        token = home_token()
    if not token:
        raise ConfigError(f"no token for {shown(url)}: pass api_key, or set {TOKEN_VARIABLE}")
    return Endpoint(url, token)
