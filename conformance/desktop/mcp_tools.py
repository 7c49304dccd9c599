"""The official MCP client from PyPI uses the desktop of a sandbox: ``mcp_tools.py SANDLING``."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Any, Callable

from mcp import Client, StdioServerParameters

SANDLING = sys.argv[1]
DESKTOP_TOOLS = {"screenshot", "click", "move", "drag", "scroll", "type", "press", "windows", "launch"}
DESKTOP_TOOLS |= {"clipboard_get", "clipboard_set"}
#: A program that the keyboard can close, at a place that is well inside the screen, and the title that its shell sets.
XTERM, TITLE = "xterm -geometry 80x20+200+200", "user@"


def client(*arguments: str) -> Client:
    return Client(StdioServerParameters(command=SANDLING, args=["mcp", *arguments], env=dict(os.environ)))


async def said(session: Client, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content if block.type == "text")
    assert not result.is_error, f"{tool}: {text}"
    return text


async def until(session: Client, tool: str, is_wanted: Callable[[str], bool], **arguments: Any) -> str:
    for _ in range(60):
        text = await said(session, tool, **arguments)
        if is_wanted(text):
            return text
        await asyncio.sleep(1)
    raise AssertionError(f"{tool} says: {text}")


async def screen(session: Client) -> bytes:
    (_, image) = (await session.call_tool("screenshot", {})).content
    assert image.type == "image" and image.mime_type == "image/png", image.type
    return base64.b64decode(image.data)


async def names(*arguments: str) -> set[str]:
    async with client(*arguments) as session:
        return {tool.name for tool in (await session.list_tools()).tools}


async def only_a_desktop_offers_its_tools() -> None:
    assert not DESKTOP_TOOLS & await names()
    assert await names("--desktop") >= DESKTOP_TOOLS
    assert await names("--template", "desktop") >= DESKTOP_TOOLS


async def a_program_is_used() -> None:
    async with client("--template", "desktop", "--timeout", "3m") as session:
        empty = await screen(session)
        assert empty.startswith(b"\x89PNG")
        await said(session, "launch", command=XTERM)
        assert " at " in await until(session, "windows", lambda listed: TITLE in listed)
        assert await screen(session) != empty
        await said(session, "click", x=350, y=350)
        await said(session, "type", text="echo it works >/tmp/typed\n")
        await until(session, "run_command", lambda ran: "it works" in ran, command="cat /tmp/typed")
        await said(session, "clipboard_set", text="ä copy")
        assert await said(session, "clipboard_get") == "ä copy"
        await said(session, "scroll", x=350, y=350, direction="up", steps=3)
        await said(session, "move", x=10, y=10)
        where = await said(session, "run_command", command="xdotool getmouselocation")
        assert "x:10 y:10" in where, where
        before = await said(session, "windows")
        # By the title bar.
        await said(session, "drag", from_x=350, from_y=212, to_x=450, to_y=312)
        await until(session, "windows", lambda listed: listed != before)
        await said(session, "click", x=450, y=450)
        await said(session, "press", keys="ctrl+d")
        await until(session, "windows", lambda listed: TITLE not in listed)
        wrong = await session.call_tool("click", {"x": 1, "y": 1, "button": "north"})
        assert wrong.is_error and "unknown variant" in wrong.content[0].text, wrong


async def main() -> None:
    for case in (only_a_desktop_offers_its_tools, a_program_is_used):
        await case()
        print(f"mcp: {case.__name__}")


asyncio.run(main())
