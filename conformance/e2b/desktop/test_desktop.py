"""E2B's desktop client, by domain and over TLS. All tests use one sandbox, because its desktop takes memory."""

import io

import pyqwest
import pytest
from e2b_desktop import Sandbox
from PIL import Image

from support.waiting import until

SCREEN = (1024, 768)
#: The window of xterm, well inside the screen: its place, a point in it, and the beginning of its first line.
GEOMETRY, INSIDE, TEXT = "80x20+200+200", (350, 350), (205, 238)


@pytest.fixture(scope="module")
def desktop():
    made = Sandbox.create(timeout=600)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def terminal(desktop):
    """The ID of a terminal's window that has the focus."""
    desktop.commands.run(f"xterm -geometry {GEOMETRY}", background=True, timeout=0)
    window = until("xterm has a window", lambda: shown(desktop, "xterm"))
    desktop.left_click(*INSIDE)
    until("xterm has the focus", lambda: "user@" in desktop.get_window_title(desktop.get_current_window_id()))
    return window


def shown(desktop, application):
    found = desktop.commands.run(f"xdotool search --onlyvisible --class {application} || true").stdout.split()
    return found and found[0]


def picture(desktop):
    return Image.open(io.BytesIO(desktop.screenshot()))


def content(desktop, path):
    return desktop.commands.run(f"cat {path} 2>/dev/null || true").stdout


def test_a_screenshot_is_a_png_of_a_painted_screen(desktop):
    screen = picture(desktop)
    assert (screen.format, screen.size) == ("PNG", SCREEN)
    assert len(screen.convert("RGB").getcolors(1 << 24)) > 50
    assert desktop.screenshot(format="bytes")[:4] == b"\x89PNG"


def test_the_screen_is_the_one_that_the_template_was_saved_with(desktop):
    assert desktop.get_screen_size() == SCREEN
    assert desktop.commands.run("pgrep -xc Xvfb; pgrep -xc xfce4-session").stdout.split() == ["1", "1"]


def test_the_mouse_goes_where_it_is_told(desktop):
    desktop.move_mouse(321, 123)
    assert desktop.get_cursor_position() == (321, 123)


def test_typed_text_and_keys_arrive_in_a_program(desktop, terminal):
    desktop.write("echo 'It is \"typed\" & $HOME' > /tmp/typed")
    desktop.press("enter")
    assert until("the line is run", lambda: content(desktop, "/tmp/typed")) == 'It is "typed" & $HOME\n'
    desktop.write("cat")
    desktop.press("enter")
    desktop.press(["ctrl", "c"])
    desktop.write("echo $? > /tmp/status\n")
    assert until("the next line is run", lambda: content(desktop, "/tmp/status")) == "130\n"


def test_clicks_and_the_wheel_arrive_in_a_program(desktop):
    desktop.commands.run("exec xev -geometry 400x300+500+300 > /tmp/events", background=True, timeout=0)
    until("xev has a window", lambda: "MapNotify" in content(desktop, "/tmp/events"))
    desktop.left_click(700, 450)
    desktop.right_click(700, 450)
    desktop.middle_click(700, 450)
    desktop.double_click(700, 450)
    desktop.scroll("up", 2)
    desktop.scroll("down", 1)

    def buttons():
        seen = content(desktop, "/tmp/events").split("ButtonPress event")[1:]
        return [event.split("button ")[1].split(",")[0] for event in seen]

    expected = ["1", "3", "2", "1", "1", "4", "4", "5"]
    until("all clicks arrived", lambda: len(buttons()) >= len(expected))
    assert buttons() == expected
    desktop.commands.run("pkill -x xev")


def test_text_is_selected_by_dragging(desktop, terminal):
    desktop.left_click(*INSIDE)
    desktop.write("clear; echo select me\n")

    def selected():
        desktop.drag(TEXT, (TEXT[0] + 300, TEXT[1]))
        return desktop.commands.run("xclip -out -selection primary 2>/dev/null || true").stdout.strip()

    until("the line is selected", lambda: selected() == "select me")


def test_windows_have_ids_and_titles(desktop, terminal):
    assert desktop.get_application_windows("xterm") == [terminal]
    assert "user@" in desktop.get_window_title(terminal)


def test_an_application_is_launched_by_its_desktop_file(desktop):
    desktop.files.write("/home/user/note.txt", "a note")
    desktop.launch("org.xfce.mousepad", "/home/user/note.txt")
    window = until("the editor has a window", lambda: shown(desktop, "mousepad"))
    until("the editor shows the file", lambda: "note.txt" in desktop.get_window_title(window))


def test_the_screen_is_streamed_by_name_over_https(desktop):
    client = pyqwest.SyncClient(pyqwest.SyncHTTPTransport(tls_include_system_certs=True))
    desktop.stream.start(require_auth=True)
    url = desktop.stream.get_url(auth_key=desktop.stream.get_auth_key())
    page = client.get(url)
    assert page.status == 200 and "noVNC" in page.text()
    # A plain request to the path of the WebSocket is refused by websockify and not by anything before it.
    assert client.get(url.split("/vnc.html")[0] + "/websockify").status in (404, 405)
    with pytest.raises(RuntimeError, match="already running"):
        desktop.stream.start()
    desktop.stream.stop()


def test_the_size_of_the_screen_can_be_chosen():
    with Sandbox.create(timeout=300, resolution=(1280, 720), dpi=120) as other:
        assert until("the size is the wanted one", lambda: other.get_screen_size() == (1280, 720))
        assert picture(other).size == (1280, 720)
