"""Sandling's Python SDK uses every part of a desktop, and says how soon a screen is there.

SANDLING_API and SANDLING_TOKEN name a server with the template `desktop`.
"""

import sys
import time
from pathlib import Path
from typing import List

from sandling import Sandbox

sys.path.append(str(Path(__file__).parents[1] / "e2b" / "python"))
from support.waiting import until  # noqa: E402

#: The window of a terminal, well inside the screen: its place, a point in it, and the title that its shell sets.
XTERM, INSIDE, TITLE = ("xterm", "-geometry", "80x20+200+200"), (350, 350), "user@"
#: A PNG of one color is smaller, whatever the color.
PAINTED_BYTES = 20_000
#: Programs start slowly without KVM.
SECONDS = 60


def content(sandbox: Sandbox, path: str) -> str:
    return sandbox.exec(["cat", path]).stdout


def the_screen_is_painted_at_once() -> None:
    began = time.monotonic()
    with Sandbox.create("desktop", ttl_seconds=300) as sandbox:
        created = time.monotonic()
        screen = sandbox.desktop.screenshot()
        shown = time.monotonic()
        assert screen.startswith(b"\x89PNG") and len(screen) > PAINTED_BYTES, len(screen)
    print(f"sdk: created after {created - began:.2f} s, and a painted screen after {shown - began:.2f} s")


def the_mouse_and_the_keyboard_reach_a_program(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    desktop.move(10, 20)
    assert desktop.cursor() == (10, 20)
    desktop.launch(*XTERM)
    window = desktop.wait_for_window(TITLE)
    assert [window.id] == [other.id for other in desktop.windows() if TITLE in other.title]
    desktop.click(*INSIDE)
    assert desktop.cursor() == INSIDE
    desktop.type("cat >/tmp/typed\n")
    # The keyboard has none of these, and fewer keys to spare than there are.
    lines = ["ä line\n", "Ελληνικά, 中文 und 20 €\n", "еще русский\n", "ä line\n"]
    for line in lines:
        desktop.type(line)
    desktop.press("ctrl", "d")
    until("the text", lambda: content(sandbox, "/tmp/typed") == "".join(lines), SECONDS)


def text_is_selected_by_dragging_and_the_clipboard_keeps_text(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    desktop.type("clear; echo select me\n")

    def selected() -> str:
        desktop.drag((205, 238), (505, 238))
        return sandbox.exec(["xclip", "-out"], user="user").stdout.strip()

    until("the line is selected", lambda: selected() == "select me", SECONDS)
    desktop.clipboard_set("ä copy")
    assert desktop.clipboard_get() == "ä copy"


def clicks_and_the_wheel_reach_a_program(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    desktop.launch("sh", "-c", "exec xev -geometry 400x300+500+300 >/tmp/events")
    until("xev has a window", lambda: "MapNotify" in content(sandbox, "/tmp/events"), SECONDS)
    desktop.click(700, 450)
    desktop.click(700, 450, button="right")
    desktop.double_click(700, 450)
    desktop.scroll("up", 2)
    desktop.scroll("down")

    def buttons() -> List[str]:
        seen = content(sandbox, "/tmp/events").split("ButtonPress event")[1:]
        return [event.split("button ")[1].split(",")[0] for event in seen if "button " in event]

    expected = ["1", "3", "1", "1", "4", "4", "5"]
    until("all clicks arrived", lambda: len(buttons()) >= len(expected), SECONDS)
    assert buttons() == expected


def the_screen_gets_another_size(sandbox: Sandbox) -> None:
    desktop = sandbox.desktop
    assert desktop.size() == (1024, 768)
    desktop.resize(1280, 800)
    assert desktop.size() == (1280, 800)
    screen = desktop.screenshot()
    assert [int.from_bytes(screen[at : at + 4], "big") for at in (16, 20)] == [1280, 800]


def main() -> None:
    the_screen_is_painted_at_once()
    with Sandbox.create("desktop", ttl_seconds=900) as sandbox:
        for case in (
            the_mouse_and_the_keyboard_reach_a_program,
            text_is_selected_by_dragging_and_the_clipboard_keeps_text,
            clicks_and_the_wheel_reach_a_program,
            the_screen_gets_another_size,
        ):
            case(sandbox)
            print(f"sdk: {case.__name__}")


if __name__ == "__main__":
    main()
