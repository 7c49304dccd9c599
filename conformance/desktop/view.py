"""The views of a screen, with and without input, as a VNC client sees them through their URLs."""

import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from sandling import Sandbox

sys.path.append(str(Path(__file__).parents[1] / "e2b" / "python"))
import support.localhost  # noqa: E402, F401

# Runs in the sandbox: a VNC client that moves the mouse to a place, on the port of its argument.
CLIENT = """
import socket, struct, sys, time
with socket.create_connection(("localhost", int(sys.argv[1]))) as vnc:
    vnc.recv(12); vnc.sendall(b"RFB 003.008\\n")
    vnc.recv(64); vnc.sendall(bytes([1]))
    vnc.recv(4); vnc.sendall(bytes([1]))
    vnc.recv(4096)
    for step in range(20):
        vnc.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, 16, 16) + struct.pack(">BBHH", 5, 0, 300, 180 + step))
        time.sleep(0.3)
"""


def page(url):
    # The first visit sets a cookie and leads on.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url) as answer:
        return answer.read()


def refused(url):
    try:
        page(url)
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    return False


def at_port(url, port):
    """The same URL, token included, for another port."""
    parts = urllib.parse.urlsplit(url)
    _, _, rest = parts.netloc.partition("-")
    return parts._replace(netloc=f"{port}-{rest}").geturl()


with Sandbox.create("desktop") as sandbox:
    desktop = sandbox.desktop
    for view_only, port, web in ((True, 5901, 6081), (False, 5900, 6080)):
        url = desktop.view_url(view_only=view_only)
        assert b"noVNC" in page(url), url
        desktop.move(10, 20)
        sandbox.exec(["python3", "-c", CLIENT, str(port)], check=True)
        assert desktop.cursor() == ((10, 20) if view_only else (300, 199)), (view_only, desktop.cursor())
        assert refused(at_port(url, 6080 if view_only else 6081)), "a URL opens one view only"
    print("ok: a view without input takes none, and its URL does not open the other view")
