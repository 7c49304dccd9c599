# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""The browser of a sandbox with a desktop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Optional

from ..desktops import CDP_PORT, CDP_START, CDP_VERSION, USER, cdp_url_of
from ..errors import CommandFailed
from .colour import sleep

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Browser:
    """``sandbox.browser``: Chromium, in sandboxes of the template ``desktop``."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def cdp_url(self, *, ttl_seconds: Optional[int] = None, timeout_seconds: float = 300) -> str:
        """A WebSocket URL that controls Chromium, for example with Playwright's ``connect_over_cdp``.

        Starts Chromium on the screen if it does not run. Anybody with the URL can use it, for an hour by default. The
        URL is valid until Chromium ends.

        :raises CommandFailed: Chromium ended while it started.
        :raises TimeoutError: it does not answer within ``timeout_seconds``.
        """
        version = self._version() or self._start(timeout_seconds)
        preview = self._sandbox.preview(CDP_PORT, ttl_seconds=ttl_seconds)
        return cdp_url_of(preview.path_url, version)

    def _version(self) -> str:
        """What Chromium says about itself; empty if it does not run."""
        return (self._sandbox.exec(CDP_VERSION, user=USER)).stdout

    def _start(self, timeout_seconds: float) -> str:
        deadline = time.monotonic() + timeout_seconds
        chromium = self._sandbox.start(CDP_START, user=USER)
        while True:
            version = self._version()
            if version:
                return version
            # It ends with 0 if another one is starting and opens a window for it.
            if (chromium.status()).exit_code:
                told = chromium.wait()
                message = f"Chromium ended with {told.exit_code} when it started: {told.stderr.strip()}"
                raise CommandFailed(message, exit_code=told.exit_code, stdout=told.stdout, stderr=told.stderr)
            if time.monotonic() > deadline:
                raise TimeoutError(f"Chromium did not open port {CDP_PORT} within {timeout_seconds:g} s")
            sleep(0.5)
