"""The page of a run in a browser: live, later, as it was, and whatever the run's texts would like to do to it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from actors.bus.journal import read_journal
from ksearch_async.views.web.updates import Update, updates_of
from messages.events import RunStarted
from tests.browser.conftest import OpenPage, Serve
from tests.browser.hostile import READABLE
from tests.browser.live_run import HOSTILE
from tests.browser.serving import WebServer, leading
from tests.ksearch_async.stories import decided, inserted, on_disk, records_of, story

JOURNAL = Path(__file__).parents[2] / "docs" / "benchmarks" / "journals" / "softmax_rows_1_h200.jsonl.gz"
NODES = "page => page.tree.drawn.count"
CALLS = 6
"""Of a model, after which several branches are under way."""
MEGABYTE = 1 << 20


class Folder:
    """Served runs that have ended."""

    def __init__(self, server: WebServer, run_id: str, updates: list[Update]) -> None:
        self.server = server
        self.run_id = run_id
        self.updates = updates

    @property
    def address(self) -> str:
        """Of the page of the real run."""
        return f"{self.server.address}#/run/{self.run_id}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A real search of 36 rounds on a GPU, and a run whose texts are hostile."""
    runs = tmp_path_factory.mktemp("runs")
    journal = runs / "unpacked.jsonl"
    journal.write_bytes(gzip.decompress(JOURNAL.read_bytes()))
    records = list(read_journal(journal))
    opening = records[0].body
    assert isinstance(opening, RunStarted)
    run = runs / opening.run_id
    run.mkdir()
    journal.rename(run / "journal.jsonl")
    hostile = [decided(inserted("n2", "n1", HOSTILE), inserted("n3", "n2", "x" * MEGABYTE))]
    on_disk(runs, [*story(None), *records_of(hostile, after=len(story(None)))], "hostile")
    server = WebServer(runs)
    try:
        yield Folder(server, opening.run_id, list(updates_of(records)))
    finally:
        server.kill()


def asked(page: Page, question: str) -> object:
    """Ask the run page, a JavaScript object, something."""
    return page.locator(".run-page").evaluate(f"element => ({question})(element.page)")


def move_slider(page: Page, position: int) -> None:
    slider = page.get_by_label("Moment of the run")
    slider.evaluate("(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }", position)


def test_a_run_that_goes_on_grows_on_the_page(open_page: OpenPage, web: Serve, tmp_path: Path) -> None:
    with leading(tmp_path / "live", rounds=20) as run:
        run.let(CALLS)
        page = open_page(f"{web(tmp_path).address}#/run/live")
        expect(page.locator(".figure-standing .value")).to_have_text("running")
        expect(page.locator(".figure-flight .detail")).to_contain_text("writing")
        nodes, updates = asked(page, NODES), asked(page, "page => page.run.length")
        run.finish()
        expect(page.locator(".figure-rounds .value")).to_have_text("20 / 20")
        expect(page.locator(".figure-standing .value")).to_have_text("finished")
        expect(page.get_by_label("Moment of the run")).not_to_have_attribute("max", str(updates))
        assert (asked(page, NODES), asked(page, "page => page.run.length")) > (nodes, updates)


def test_a_server_that_dies_and_comes_back_costs_the_page_nothing(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    """The run goes on meanwhile: what was written in between comes afterwards, each update once and in order."""
    with leading(tmp_path / "live", rounds=20) as run:
        run.let(CALLS)
        server = web(tmp_path)
        page = open_page(f"{server.address}#/run/live", may_lose_server=True)
        expect(page.locator(".figure-standing .value")).to_have_text("running")
        expect(page.locator("#connection")).to_have_text("live")
        slider = page.get_by_label("Moment of the run")
        last = slider.get_attribute("max") or ""
        run.let(2 * CALLS)
        expect(slider).not_to_have_attribute("max", last)  # the stream has brought something that must not come twice
        server.kill()
        expect(page.locator("#connection")).to_contain_text("lost")
        run.finish()
        server.start()
        expect(page.locator(".figure-standing .value")).to_have_text("finished")
        expect(page.locator("#connection")).to_have_text("live")
        written = [update.seq for update in updates_of(read_journal(tmp_path / "live" / "journal.jsonl"))]
        length = "page => Array.from({length: page.run.length}, (_, position) => page.run.at(position).seq)"
        assert asked(page, length) == written


def test_the_slider_shows_the_run_as_it_was(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address)
    last = len(folder.updates) - 1
    for position in (last // 2, 40, 0):
        move_slider(page, position)
        totals = folder.updates[position].totals
        expect(page.locator(".figure-rounds .value")).to_have_text(f"{totals.rounds} / 36")
        known = {node.node_id for update in folder.updates[: position + 1] for node in update.nodes}
        assert asked(page, NODES) == len(known)
    page.get_by_role("button", name="Now").click()
    expect(page.locator(".figure-standing .value")).to_have_text("finished")
    expect(page.locator(".figure-best .value")).to_have_text("2.11x")


def test_before_there_is_a_best_its_figure_says_what_there_is_and_afterwards_what_it_is(
    open_page: OpenPage, folder: Folder
) -> None:
    page = open_page(folder.address)
    detail = page.locator(".figure-best .detail")
    at_last = detail.text_content() or ""
    assert "us" in at_last
    move_slider(page, 0)
    expect(detail).to_have_text("nothing right and timed yet")
    screened = next(number for number, update in enumerate(folder.updates) if any(one.worth for one in update.attempts))
    assert not folder.updates[screened].totals.best_id
    move_slider(page, screened)
    expect(detail).to_contain_text("none confirmed yet; up to")
    page.get_by_role("button", name="Now").click()
    expect(detail).to_have_text(at_last)


def test_playing_on_ends_at_now(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address)
    move_slider(page, len(folder.updates) - 8)
    expect(page.locator(".figure-standing .value")).to_have_text("running")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".figure-standing .value")).to_have_text("finished")
    expect(page.get_by_role("button", name="Now")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_keys_lead_through_the_tree_and_into_an_action(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address)
    tree = page.get_by_role("application", name="Search tree")
    tip = page.locator(".tree-tip")
    best = next(mark for update in reversed(folder.updates) for mark in update.marks).node_id
    tree.press("Home")
    expect(tip).to_contain_text("n0 reference")
    tree.press("ArrowRight")
    expect(tip).to_contain_text("n1 ")
    tree.press("End")
    expect(tip).to_contain_text(f"{best} ")
    expect(page.locator("#announcer")).to_contain_text(f"{best}, ")
    tree.press("Enter")
    expect(page).to_have_url(f"{folder.address}/node/{best}")


def test_an_action_that_is_clicked_opens_and_one_that_is_dragged_does_not(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address)
    box = page.locator(".tree-box").bounding_box()
    place = asked(page, "page => page.tree.drawn.placeOf('n1')")
    assert box is not None
    assert isinstance(place, list)
    x, y = box["x"] + place[0], box["y"] + place[1]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 30, steps=3)
    page.mouse.up()
    expect(page).to_have_url(folder.address)
    assert asked(page, "page => page.tree.drawn.placeOf('n1')") == [place[0] + 60, place[1] + 30]
    page.mouse.click(x + 60, y + 30)
    expect(page).to_have_url(f"{folder.address}/node/n1")


def test_the_list_tells_of_every_action(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address)
    page.get_by_role("button", name="List").click()
    nodes = {node.node_id: node for update in folder.updates for node in update.nodes}
    rows = page.locator(".tree-list tbody tr")
    expect(rows).to_have_count(len(nodes))
    for node_id in ("n1", "n5"):
        expect(page.locator(f"tr[data-node={node_id}]")).to_contain_text(nodes[node_id].title)


def test_hostile_text_is_shown_and_does_nothing(open_page: OpenPage, folder: Folder) -> None:
    """`open_page` fails the test if a script ran into an error, opened a dialog, or was kept from running."""
    page = open_page(f"{folder.server.address}#/run/hostile")
    page.get_by_role("button", name="List").click()
    expect(page.locator("tr[data-node=n2]")).to_contain_text(READABLE)
    expect(page.locator("tr[data-node=n3]")).to_contain_text(f"({MEGABYTE:,} characters)")
    assert page.locator("main script, main img").count() == 0
    assert page.title() == "hostile · ksearch"


def test_the_token_is_kept_and_leaves_the_address(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(f"{folder.server.address}#token={folder.server.token}")
    expect(page).to_have_url(f"{folder.server.address}#/")
    page.goto(folder.address)
    page.reload()
    expect(page.get_by_role("button", name="Fit")).to_be_visible()
    assert page.evaluate("fetch('/api/server').then(each => each.json())")["can_steer"] is False  # nothing goes unasked
    assert page.evaluate("import('/static/api.js').then(api => api.get('/api/server'))")["can_steer"] is True


def test_the_readers_colours_are_kept(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(folder.address, scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    ground = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert ground == "rgb(246, 247, 249)"


def test_a_page_that_is_not_there_says_so(open_page: OpenPage, folder: Folder) -> None:
    page = open_page(f"{folder.server.address}#/nowhere/at/all")
    expect(page.get_by_role("alert")).to_contain_text("there is no page #/nowhere/at/all")
