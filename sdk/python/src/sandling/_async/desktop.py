"""The desktop of a sandbox: its screen, mouse, keyboard, windows and clipboard."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..desktops import BUTTONS, USER, VIEW_ONLY_PORT, VIEW_PORT, WHEEL, Window, chord, pair_of, view_url_of, windows_of
from .colour import sleep
from .exec import AsyncExec

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncDesktop:
    """``sandbox.desktop``, in sandboxes of the template ``desktop``. Positions are pixels from the upper left."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def screenshot(self) -> bytes:
        """The screen with the mouse pointer, as a PNG."""
        path = f"/tmp/screenshot-{uuid.uuid4().hex}.png"
        await self._tool("scrot", "--pointer", path)
        picture = await self._sandbox.files.read(path)
        await self._sandbox.files.remove(path)
        return picture

    async def size(self) -> Tuple[int, int]:
        """The width and height of the screen."""
        return pair_of(r"(\d+) (\d+)", await self._tool("xdotool", "getdisplaygeometry"))

    async def resize(self, width: int, height: int) -> None:
        """Sets the width and height of the screen, up to 3840 by 2160."""
        await self._tool("resize-desktop", str(width), str(height))

    async def cursor(self) -> Tuple[int, int]:
        """The position of the mouse pointer."""
        return pair_of(r"x:(\d+) y:(\d+)", await self._tool("xdotool", "getmouselocation"))

    async def move(self, x: int, y: int) -> None:
        """Moves the mouse pointer."""
        await self._tool("xdotool", *_to((x, y)))

    async def click(self, x: Optional[int] = None, y: Optional[int] = None, button: str = "left") -> None:
        """Clicks a mouse button (``left``, ``middle`` or ``right``), where the pointer is or at a position."""
        await self._tool("xdotool", *_maybe_to(x, y), "click", BUTTONS[button])

    async def double_click(self, x: Optional[int] = None, y: Optional[int] = None) -> None:
        """Clicks the left mouse button twice."""
        await self._tool("xdotool", *_maybe_to(x, y), "click", "--repeat", "2", "--delay", "50", BUTTONS["left"])

    async def scroll(self, direction: str = "down", amount: int = 1) -> None:
        """Turns the mouse wheel by ``amount`` steps: ``up``, ``down``, ``left`` or ``right``."""
        await self._tool("xdotool", "click", "--repeat", str(amount), "--delay", "20", WHEEL[direction])

    async def drag(self, start: Tuple[int, int], end: Tuple[int, int]) -> None:
        """Moves the pointer from one position to another while the left mouse button is pressed."""
        # XFCE's window manager takes the first motion as the beginning of a drag, and moves with the next ones.
        between = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2)
        await self._tool("xdotool", *_to(start), "mousedown", "1", *_to(between), *_to(end), "mouseup", "1")

    async def type(self, text: str, delay_ms: int = 12) -> None:
        """Types a text into the window that has the focus, with a delay between keys."""
        await self._tool("xdotool", "type", "--delay", str(delay_ms), "--", text)

    async def press(self, *keys: str) -> None:
        """Presses keys together and releases them: ``press("enter")``, ``press("ctrl", "c")``."""
        await self._tool("xdotool", "key", "--", chord(keys))

    async def windows(self) -> List[Window]:
        """The open windows."""
        return windows_of(await self._tool("wmctrl", "-lG"))

    async def wait_for_window(self, title: str, timeout_seconds: float = 30) -> Window:
        """The first open window whose title contains ``title``, as soon as there is one.

        :raises TimeoutError: there is none after ``timeout_seconds``.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            for window in await self.windows():
                if title in window.title:
                    return window
            if time.monotonic() > deadline:
                raise TimeoutError(f"no window with {title!r} in its title opened within {timeout_seconds} s")
            await sleep(0.2)

    async def launch(self, program: str, *arguments: str) -> AsyncExec:
        """Starts a program of the desktop in the background, such as ``xterm`` or ``chromium``."""
        return await self._sandbox.start([program, *arguments], user=USER)

    async def clipboard_get(self) -> str:
        """The text in the clipboard. An empty clipboard is an error."""
        return await self._tool("xclip", "-selection", "clipboard", "-out")

    async def clipboard_set(self, text: str) -> None:
        """Puts a text into the clipboard."""
        await self._tool("xclip", "-selection", "clipboard", "-in", stdin=text)

    async def view_url(self, *, view_only: bool = False, ttl_seconds: Optional[int] = None) -> str:
        """A URL that shows the screen in a browser. Anybody with the URL can use it, for an hour by default.

        With ``view_only``, the URL leads to a view that takes no input.
        """
        await self._tool("view-desktop", *(["only"] if view_only else []))
        port = VIEW_ONLY_PORT if view_only else VIEW_PORT
        preview = await self._sandbox.preview(port, ttl_seconds=ttl_seconds)
        return view_url_of(preview.url, view_only)

    async def _tool(self, *command: str, stdin: Optional[str] = None) -> str:
        result = await self._sandbox.exec(command, check=True, user=USER, stdin=stdin)
        return result.stdout


def _to(position: Tuple[int, int]) -> List[str]:
    return ["mousemove", "--sync", *map(str, position)]


def _maybe_to(x: Optional[int], y: Optional[int]) -> List[str]:
    if x is None and y is None:
        return []
    if x is None or y is None:
        raise TypeError("a position has an x and a y")
    return _to((x, y))
