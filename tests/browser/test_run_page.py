"""The page of a run in a browser, over a run that goes on meanwhile in another process."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, Serve
from tests.browser.serving import leading


def test_the_page_of_a_run_opens(open_page: OpenPage, web: Serve, tmp_path: Path) -> None:
    with leading(tmp_path / "live", rounds=12) as run:
        run.let(4)
        page = open_page(f"{web(tmp_path).address}#/run/live")
        expect(page.locator("main")).to_contain_text("rounds")
