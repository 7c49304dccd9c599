"""Playwright from PyPI, unmodified, controls the Chromium of a sandbox through both Python clients.

SANDLING_API and SANDLING_TOKEN name a server with the template `desktop`.
"""

import asyncio

from playwright.async_api import async_playwright
from playwright.sync_api import sync_playwright

from sandling import AsyncSandbox, Sandbox

#: Chromium is slow without KVM.
PATIENCE_MS = 300_000
PAGE = "data:text/html,<title>one</title><button onclick='document.title=\"two\"'>press</button>"


def press(sandbox: Sandbox) -> str:
    """Starts Chromium, opens a page, presses its button, and returns the URL that did it."""
    url = sandbox.browser.cdp_url()
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(url, timeout=PATIENCE_MS)
        page = browser.contexts[0].pages[0]
        page.set_default_timeout(PATIENCE_MS)
        page.goto(PAGE)
        assert page.title() == "one"
        page.click("button")
        assert page.title() == "two"
        assert page.screenshot().startswith(b"\x89PNG")
    # The desktop shows the same browser.
    assert sandbox.desktop.wait_for_window("two", timeout_seconds=60).title
    return url


async def look(sandbox_id: str) -> str:
    """Finds the page of the running Chromium."""
    sandbox = await AsyncSandbox.get(sandbox_id)
    url = await sandbox.browser.cdp_url()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(url, timeout=PATIENCE_MS)
        assert [await page.title() for page in browser.contexts[0].pages] == ["two"]
    return url


def main() -> None:
    with Sandbox.create("desktop", ttl_seconds=1200) as sandbox:
        first = press(sandbox)
        second = asyncio.run(look(sandbox.id))
        assert first.rsplit("/", 1)[-1] == second.rsplit("/", 1)[-1], "a second Chromium was started"
    print("browser: Playwright pressed a button, and found the same Chromium again")


if __name__ == "__main__":
    main()
