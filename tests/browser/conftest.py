"""A real browser over a real `ksearch web`: what every test of the page begins with.

`open_page(address)` opens a page; at the test's end nothing may have been complained of: no error on the console, no
script that failed, nothing that the content security policy forbade. `web(folder)` serves a folder of runs. Wait for
conditions with `expect(...)`, never for time (`wait_for_function` evaluates text, which the policy forbids). Its
Chromium is Debian's, or the one that CHROMIUM names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, ViewportSize, expect, sync_playwright

from tests.browser.serving import PATIENCE_S, WebServer, waited_for

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
WIDE: ViewportSize = {"width": 1280, "height": 900}
Serve: TypeAlias = Callable[[Path], WebServer]
OpenPage: TypeAlias = Callable[..., Page]
"""`open_page(address, viewport=WIDE, scheme="light", may_lose_server=False)`"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here as needing a browser, and give it the time that a browser takes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(4 * PATIENCE_S))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the browser once; return where it listens."""
    named = os.environ.get("CHROMIUM", "")
    program = shutil.which(named or "chromium")
    if program is None:
        missing = f"no browser {named or 'chromium'!r}: install Debian's `chromium`, or name one in CHROMIUM"
        if named or os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    profile = tmp_path_factory.mktemp("profile")
    with (profile / "log").open("wb") as log:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        told = profile / "DevToolsActivePort"
        waited_for(lambda: told.exists() and "\n" in told.read_text(), lambda: (profile / "log").read_text()[-2000:])
        yield f"http://127.0.0.1:{told.read_text().split()[0]}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Return the browser. Its driver ends with the module: while it runs, no other event loop can."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        connected = playwright.chromium.connect_over_cdp(chromium)
        yield connected
        connected.close()


@pytest.fixture
def web() -> Iterator[Serve]:
    """Serve folders of runs until the test ends."""
    with ExitStack() as stack:

        def served(runs_dir: Path) -> WebServer:
            server = WebServer(runs_dir)
            stack.callback(server.kill)
            return server

        yield served


@pytest.fixture
def open_page(browser: Browser, web: Serve) -> Iterator[OpenPage]:
    """Open pages that fail the test if anything is complained of in them. They are closed before their server ends."""
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def hear_while_server_may_go(message: ConsoleMessage) -> None:
        if message.type == "error" and "ERR_" not in message.text:
            complaints.append(message.text)

    def dismiss(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    with ExitStack() as stack:

        def opened(
            address: str, *, viewport: ViewportSize = WIDE, scheme: str = "light", may_lose_server: bool = False
        ) -> Page:
            is_dark = scheme == "dark"
            context = browser.new_context(viewport=viewport, color_scheme="dark" if is_dark else "light")
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_S * 1000)
            page = context.new_page()
            page.on("console", hear_while_server_may_go if may_lose_server else hear)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", dismiss)
            page.goto(address)
            return page

        yield opened
    assert complaints == []
