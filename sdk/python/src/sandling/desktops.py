"""What the desktop of a sandbox is made of: windows, keys, mouse buttons, and the ports of noVNC and Chromium."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import List, Tuple
from urllib.parse import urlsplit

#: The user whose session the desktop shows.
USER = "user"
#: The ports on which noVNC serves the screen: with the mouse and the keyboard, and without them.
VIEW_PORT, VIEW_ONLY_PORT = 6080, 6081
#: The port on which Chromium speaks the DevTools protocol.
CDP_PORT = 9222
#: Prints what Chromium says about itself there, or nothing if it does not run.
CDP_VERSION = ["curl", "--silent", "--fail", "--max-time", "10", f"http://localhost:{CDP_PORT}/json/version"]
#: Starts Chromium with that port. Without a network, its own first page never opens, and Playwright waits for it.
CDP_START = ["chromium-devtools", "about:blank"]

BUTTONS = {"left": "1", "middle": "2", "right": "3"}
WHEEL = {"up": "4", "down": "5", "left": "6", "right": "7"}
#: Common names of keys, besides the names that X has for them.
KEYS = {
    "backspace": "BackSpace",
    "delete": "Delete",
    "down": "Down",
    "end": "End",
    "enter": "Return",
    "esc": "Escape",
    "escape": "Escape",
    "home": "Home",
    "insert": "Insert",
    "left": "Left",
    "page_down": "Next",
    "page_up": "Prior",
    "right": "Right",
    "tab": "Tab",
    "up": "Up",
}


@dataclass(frozen=True)
class Window:
    """A window on the screen. ``x`` and ``y`` are of its upper left corner."""

    id: str
    title: str
    x: int
    y: int
    width: int
    height: int


def chord(keys: Tuple[str, ...]) -> str:
    """Keys that are pressed together, as xdotool takes them."""
    return "+".join(KEYS.get(key, key) for key in keys)


def windows_of(listing: str) -> List[Window]:
    """The windows in the output of ``wmctrl -lG``, without the panel and the background, which are on all desktops."""
    found = []
    for line in listing.splitlines():
        identifier, desktop, *numbers, _, title = [*line.split(None, 7), ""][:8]
        if desktop != "-1":
            found.append(Window(identifier, title.strip(), *map(int, numbers)))
    return found


def pair_of(pattern: str, output: str) -> Tuple[int, int]:
    """Two numbers in the output of a command."""
    match = re.search(pattern, output)
    if match is None:
        raise ValueError(f"the desktop's tool printed no position or size: {output!r}")
    return int(match[1]), int(match[2])


def view_url_of(preview_url: str, view_only: bool) -> str:
    """noVNC's page, below the URL of its port."""
    url = urlsplit(preview_url)
    options = ["autoconnect=true", "resize=scale", *(["view_only=true"] if view_only else [])]
    query = "&".join([*filter(None, [url.query]), *options])
    return url._replace(path=f"{url.path.rstrip('/')}/vnc.html", query=query).geturl()


def cdp_url_of(path_url: str, version: str) -> str:
    """The WebSocket of a browser, below the URL of its port. The browser itself names it by a host of the sandbox."""
    socket = urlsplit(json.loads(version)["webSocketDebuggerUrl"])
    url = urlsplit(path_url)
    scheme = {"http": "ws", "https": "wss"}[url.scheme]
    return url._replace(scheme=scheme, path=url.path.rstrip("/") + socket.path).geturl()
