# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""The desktop of a sandbox: its screen, mouse, keyboard, windows and clipboard."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..desktops import BUTTONS, USER, VIEW_ONLY_PORT, VIEW_PORT, WHEEL, Window, chord, pair_of, view_url_of, windows_of
from .colour import sleep
from .exec import Exec

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Desktop:
    """``sandbox.desktop``, in sandboxes of the template ``desktop``. Positions are pixels from the upper left."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def screenshot(self) -> bytes:
        """The screen with the mouse pointer, as a PNG."""
        path = f"/tmp/screenshot-{uuid.uuid4().hex}.png"
        self._tool("scrot", "--pointer", path)
        picture = self._sandbox.files.read(path)
        self._sandbox.files.remove(path)
        return picture

    def size(self) -> Tuple[int, int]:
        """The width and height of the screen."""
        return pair_of(r"(\d+) (\d+)", self._tool("xdotool", "getdisplaygeometry"))

    def resize(self, width: int, height: int) -> None:
        """Sets the width and height of the screen, up to 3840 by 2160."""
        self._tool("resize-desktop", str(width), str(height))

    def cursor(self) -> Tuple[int, int]:
        """The position of the mouse pointer."""
        return pair_of(r"x:(\d+) y:(\d+)", self._tool("xdotool", "getmouselocation"))

    def move(self, x: int, y: int) -> None:
        """Moves the mouse pointer."""
        self._tool("xdotool", *_to((x, y)))

    def click(self, x: Optional[int] = None, y: Optional[int] = None, button: str = "left") -> None:
        """Clicks a mouse button (``left``, ``middle`` or ``right``), where the pointer is or at a position."""
        self._tool("xdotool", *_maybe_to(x, y), "click", BUTTONS[button])

    def double_click(self, x: Optional[int] = None, y: Optional[int] = None) -> None:
        """Clicks the left mouse button twice."""
        self._tool("xdotool", *_maybe_to(x, y), "click", "--repeat", "2", "--delay", "50", BUTTONS["left"])

    def scroll(self, direction: str = "down", amount: int = 1) -> None:
        """Turns the mouse wheel by ``amount`` steps: ``up``, ``down``, ``left`` or ``right``."""
        self._tool("xdotool", "click", "--repeat", str(amount), "--delay", "20", WHEEL[direction])

    def drag(self, start: Tuple[int, int], end: Tuple[int, int]) -> None:
        """Moves the pointer from one position to another while the left mouse button is pressed."""
        # XFCE's window manager takes the first motion as the beginning of a drag, and moves with the next ones.
        between = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2)
        self._tool("xdotool", *_to(start), "mousedown", "1", *_to(between), *_to(end), "mouseup", "1")

    def type(self, text: str, delay_ms: int = 12) -> None:
        """Types a text into the window that has the focus, with a delay between keys."""
        self._tool("xdotool", "type", "--delay", str(delay_ms), "--", text)

    def press(self, *keys: str) -> None:
        """Presses keys together and releases them: ``press("enter")``, ``press("ctrl", "c")``."""
        self._tool("xdotool", "key", "--", chord(keys))

    def windows(self) -> List[Window]:
        """The open windows."""
        return windows_of(self._tool("wmctrl", "-lG"))

    def wait_for_window(self, title: str, timeout_seconds: float = 30) -> Window:
        """The first open window whose title contains ``title``, as soon as there is one.

        :raises TimeoutError: there is none after ``timeout_seconds``.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            for window in self.windows():
                if title in window.title:
                    return window
            if time.monotonic() > deadline:
                raise TimeoutError(f"no window with {title!r} in its title opened within {timeout_seconds} s")
            sleep(0.2)

    def launch(self, program: str, *arguments: str) -> Exec:
        """Starts a program of the desktop in the background, such as ``xterm`` or ``chromium``."""
        return self._sandbox.start([program, *arguments], user=USER)

    def clipboard_get(self) -> str:
        """The text in the clipboard. An empty clipboard is an error."""
        return self._tool("xclip", "-selection", "clipboard", "-out")

    def clipboard_set(self, text: str) -> None:
        """Puts a text into the clipboard."""
        self._tool("xclip", "-selection", "clipboard", "-in", stdin=text)

    def view_url(self, *, view_only: bool = False, ttl_seconds: Optional[int] = None) -> str:
        """A URL that shows the screen in a browser. Anybody with the URL can use it, for an hour by default.

        With ``view_only``, the URL leads to a view that takes no input.
        """
        self._tool("view-desktop", *(["only"] if view_only else []))
        port = VIEW_ONLY_PORT if view_only else VIEW_PORT
        preview = self._sandbox.preview(port, ttl_seconds=ttl_seconds)
        return view_url_of(preview.url, view_only)

    def _tool(self, *command: str, stdin: Optional[str] = None) -> str:
        result = self._sandbox.exec(command, check=True, user=USER, stdin=stdin)
        return result.stdout


def _to(position: Tuple[int, int]) -> List[str]:
    return ["mousemove", "--sync", *map(str, position)]


def _maybe_to(x: Optional[int], y: Optional[int]) -> List[str]:
    if x is None and y is None:
        return []
    if x is None or y is None:
        raise TypeError("a position has an x and a y")
    return _to((x, y))
