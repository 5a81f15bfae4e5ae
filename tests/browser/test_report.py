"""A report in a browser, opened from the disk: it asks for nothing, complains of nothing, and reads on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from ksearch_async.views.report.page import dossier_of, page_of
from tests.browser.conftest import WIDE, OpenPage
from tests.ksearch_async.stories import on_disk, sequel
from tests.ksearch_async.views.report.recorded import hostile

PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two reports."""
    folder = tmp_path_factory.mktemp("reports")
    for name, records in (("ours", sequel()), ("hostile", hostile())):
        html = page_of([dossier_of(on_disk(folder, records, name))])
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


def is_not_wider_than_its_window(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_a_report_asks_for_nothing_and_has_its_figures(
    open_page: OpenPage, folder: Path, viewport: ViewportSize, scheme: str
) -> None:
    page = open_page("about:blank", viewport=viewport, scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "ours.html").as_uri())
    expect(page.locator("h1")).to_have_text("relu on AMD EPYC")
    expect(page.locator("figure svg")).to_have_count(4)
    assert asked == [page.url]
    assert is_not_wider_than_its_window(page)
    box = page.locator("figure svg").first.bounding_box()
    assert box is not None
    assert box["height"] > 100
    paper = page.evaluate("getComputedStyle(document.querySelector('#f1-patch_1 path')).fill")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")


def test_hostile_texts_are_read_and_not_run(open_page: OpenPage, folder: Path) -> None:
    page = open_page((folder / "hostile.html").as_uri())
    expect(page.locator("h1")).to_contain_text("<script>alert(1)</script>")
    assert page.evaluate("document.scripts.length") == 0
    assert is_not_wider_than_its_window(page)
