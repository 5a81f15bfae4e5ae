"""The pages beside the run's own, in a browser: list, node, differences, timeline, costs, comparison, steering."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import msgspec
from playwright.sync_api import Locator, Page, ViewportSize, expect

from messages.codec import Record
from messages.facts import Decided, RunStopping, WriteRequested
from tests.browser.conftest import OpenPage, Serve
from tests.browser.hostile import READABLE, hostile_run
from tests.browser.live_run import HOSTILE
from tests.browser.serving import LiveRun, leading
from tests.ksearch_async.stories import KERNEL, decided, on_disk, records_of, sequel, story
from tests.ksearch_async.test_confirmed import lucky_run

PHONE: ViewportSize = {"width": 390, "height": 844}
FOLDER = "<img src=x onerror=alert(1)>"
"""A run's name."""
PAGES = ("", "/node/n1", "/diff", "/lanes", "/costs")
"""Of a run."""


def test_the_pages_of_a_finished_run_lead_from_the_list_to_what_differs(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    on_disk(tmp_path, story(), "early")
    on_disk(tmp_path, sequel_from(KERNEL.candidate_id), "late")
    address = web(tmp_path).address
    page = open_page(address)
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    page.get_by_label("Filter by task or name").fill("late")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    page.get_by_label("Filter by task or name").fill("")
    for run_id in ("early", "late"):
        page.get_by_label(f"Choose {run_id}").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    expect(page.locator("svg.plot path.plot-line")).not_to_have_count(0)
    expect(page.get_by_label("Table")).to_contain_text("2.50x")

    go(page, "#/run/late/node/n1")
    expect(page.locator("details.attempt")).to_have_count(2)
    expect(page.locator(".attempt[open] .listing-text .hl-comment")).to_have_text("// fast")
    page.keyboard.press("ArrowRight")
    expect(page.locator("h2.title")).to_contain_text("split the rows")
    page.get_by_role("link", name="What changed against what it builds on").click()
    expect(page.locator("table.diff.split td.line.added")).to_have_text(["#include <rows.h>", "// rows"])
    page.get_by_role("button", name="Unified").click()
    expect(page.locator("table.diff.unified ins")).to_have_text(["#include <rows.h>", "// rows"])

    go(page, "#/run/late/lanes")
    expect(page.locator("table.lane-sums")).to_contain_text("evaluator · AMD EPYC")
    assert drawn_pixels(page.locator("canvas.lanes")) > 50
    page.locator("canvas.lanes").focus()
    for key in ("]", "]", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("h2.title")).to_contain_text("n1")

    go(page, "#/run/late/costs")
    expect(page.get_by_label("By model")).to_contain_text("coder")
    go(page, "#/nodes")
    expect(page.get_by_role("status").filter(has_text="No process")).to_be_visible()


def test_what_models_kernels_and_workers_write_shows_as_text_everywhere(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    on_disk(tmp_path, hostile_run(), "hostile")
    on_disk(tmp_path, story(), FOLDER)
    page = open_page(web(tmp_path).address, viewport=PHONE, scheme="dark")
    expect(page.locator("table.runs")).to_contain_text("<script>")
    expect(page.locator("table.runs")).to_contain_text(FOLDER)
    for path in PAGES:
        go(page, f"#/run/hostile{path}")
        expect(page.locator("main")).to_contain_text("<script>")
    go(page, "#/run/hostile/node/n1")
    expect(page.locator("h2.title")).to_contain_text(READABLE)
    attempts = page.locator("details.attempt")
    for attempt in (attempts.nth(0), attempts.nth(1)):
        if attempt.get_attribute("open") is None:
            attempt.locator("> summary").click()
        expect(attempt.locator("[data-part=build-log]")).to_be_visible()
        attempt.evaluate("(box) => box.querySelectorAll('details').forEach((part) => { part.open = true; })")
        for name in ("prompt", "answer", "source"):
            expect(attempt.locator(f"[data-part={name}]").first).to_contain_text(READABLE)
    failed = attempts.nth(1)
    expect(failed.locator("[data-part=build-log] .listing-text")).to_have_text(f"error: {READABLE}")
    expect(failed).to_contain_text("It did not build: <script>")
    expect(failed.locator("[data-part=source] > summary")).to_contain_text(READABLE)
    expect(attempts.nth(0).locator("table.workloads")).to_contain_text("<script>")
    expect(attempts.nth(0).locator(".verdict")).to_contain_text(f"worker{READABLE}")
    long = attempts.nth(0).locator("[data-part=source] .listing-text").last
    expect(long).to_contain_text("(1,000,000 characters)")
    go(page, "#/run/hostile/lanes")
    expect(page.locator("table.lane-sums")).to_contain_text(READABLE[:80])
    go(page, f"#/compare/hostile,{quote(FOLDER)}")
    expect(page.get_by_label("Table")).to_contain_text(FOLDER)
    assert page.locator("main script, main img, main iframe").count() == 0
    assert page.title() == "Compare · ksearch"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_live_run_is_watched_and_steered(open_page: OpenPage, web: Serve, tmp_path: Path) -> None:
    with leading(tmp_path / "live", rounds=8) as run:
        server = web(tmp_path)
        page = open_page(f"{server.address}#/run/live")
        run.let(3)
        expect(page.locator(".steering-why")).to_contain_text("no token")
        expect(page.locator("[data-order=pause]")).to_be_disabled()
        go(page, f"#/run/live&token={server.token}")
        order(page, "Pause", "paused")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        order(page, "Continue", "goes on")
        page.get_by_label("Instruction").fill(f"avoid {HOSTILE}")
        order(page, "Tell", "avoid <script>document.title='owned'</script><img src=x onerror=alert(1)>")
        finish_watched(page, run)


def order(page: Page, button: str, said: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator(".steering-said li").first).to_contain_text(said)


def finish_watched(page: Page, run: LiveRun) -> None:
    go(page, "#/run/live/node/n1")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_enabled()
    page.get_by_role("button", name="Forbid").click()
    page.get_by_role("button", name="No").click()
    order(page, "Pin", "n1")
    run.finish()
    expect(page.locator(".steering-why")).to_contain_text("The run has ended")
    expect(page.locator("details.attempt").first).to_be_visible()
    go(page, "#/")
    expect(page.locator("table.runs .standing")).to_have_text("finished: rounds")


def test_a_run_is_opened_by_its_own_name_and_says_as_elsewhere_how_it_stands(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    on_disk(tmp_path, story("infrastructure"), "early")
    on_disk(tmp_path, story("interrupted"), "late")
    stopping = records_of([decided(RunStopping(stopped_by="interrupted"))], after=len(story(None)))
    on_disk(tmp_path, [*story(None), *stopping], "killed while it stopped")
    page = open_page(web(tmp_path).address)
    standings = page.locator("table.runs .standing")
    expect(standings).to_have_count(3)
    assert sorted(standings.all_text_contents()) == ["failed", "interrupted", "stopped"]
    page.get_by_label("State").select_option("failed")
    expect(standings).to_have_text(["failed"])
    page.get_by_label("State").select_option("all states")
    page.get_by_text("early", exact=True).click()
    expect(page).to_have_url(re.compile("#/run/early$"))


def test_what_is_not_there_is_said_in_words(open_page: OpenPage, web: Serve, tmp_path: Path) -> None:
    server = web(tmp_path)
    page = open_page(server.address, may_lose_server=True)
    expect(page.locator(".runs-said")).to_contain_text("There is no run here yet")
    go(page, "#/compare")
    expect(page.locator("main")).to_contain_text("no two runs")
    on_disk(tmp_path, story(None)[:1], "begun")
    go(page, "#/run/begun/diff")
    expect(page.locator("main")).to_contain_text("no candidate yet")
    go(page, "#/run/begun/lanes")
    expect(page.locator("main")).to_contain_text("Nothing was asked of anybody yet")
    go(page, "#/run/begun/costs")
    expect(page.locator("main")).to_contain_text("No model has answered yet")
    go(page, "#/")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    server.kill()
    expect(page.locator(".runs-said")).to_contain_text("the server")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)


def test_differences_name_candidates_by_what_their_confirmation_said(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    on_disk(tmp_path, lucky_run().records, "lucky")
    page = open_page(web(tmp_path).address)
    go(page, "#/run/lucky/diff")
    offered = page.locator("select[data-side=right] option")
    expect(offered.filter(has_text="round 1")).to_contain_text("1.85x")
    expect(offered.filter(has_text="round 2")).to_contain_text("wrong")


def test_differences_give_both_texts_back_and_bands_span_all_seeds(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    page = open_page(web(tmp_path).address)
    before = "".join(f"line {number}\n" for number in range(40))
    after = before.replace("line 3\n", "").replace("line 20\n", "line twenty\nmore\n") + "end"
    sides, folded = page.evaluate(
        """async ([before, after]) => {
            const { rowsBetween, foldedStretches } = await import("/static/differences.js");
            const rows = rowsBetween(before, after);
            const text = (side) => rows.map((row) => row[side]).filter(Boolean).map((line) => line.text);
            const folded = foldedStretches(rows).filter((each) => each.folded).map((each) => each.rows.length);
            return [[text("left"), text("right")], folded];
        }""",
        [before, after],
    )
    assert sides == [before.splitlines(), after.splitlines()]
    assert folded == [10, 13]
    band, fraction = page.evaluate(
        """async () => {
            const { bandOf, fractionCurve } = await import("/static/standings.js");
            const curves = [[[1, 2], [3, 4], [9, 4]], [[2, 1], [8, 3]], [[0, 5], [9, 5]]];
            return [bandOf(curves), fractionCurve([3, 1, 2, 2])];
        }"""
    )
    assert band == [
        {"x": 2, "low": 1, "middle": 2, "high": 5},
        {"x": 3, "low": 1, "middle": 4, "high": 5},
        {"x": 8, "low": 3, "middle": 4, "high": 5},
    ]
    assert fraction == [[0, 1], [1, 0.75], [2, 0.5], [2, 0.25], [3, 0]]


def test_rounds_are_counted_in_whole_numbers_where_runs_are_compared(
    open_page: OpenPage, web: Serve, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        on_disk(tmp_path, story(), name)
    page = open_page(f"{web(tmp_path).address}#/compare/one,other")
    expect(page.locator("svg .plot-grid").first).to_be_attached()
    labels = page.evaluate(
        """() => {
            const plot = document.querySelector("svg:has(.plot-grid)");
            const below = [...plot.querySelectorAll("text[text-anchor=middle]:not([transform]):not(.plot-title)")];
            return below.map((label) => label.textContent);
        }"""
    )
    assert labels == ["0", "1", "2"]


def sequel_from(base_id: str) -> list[Record]:
    """Return the longer story, whose last attempt is made of an earlier candidate."""
    records = sequel()
    for at, record in enumerate(records):
        body = record.body
        if isinstance(body, Decided) and isinstance(body.facts[0], WriteRequested) and body.facts[0].branch_id == "b20":
            asked = msgspec.structs.replace(body.facts[0], base_id=base_id)
            records[at] = msgspec.structs.replace(record, body=decided(asked))
    return records


def go(page: Page, fragment: str) -> None:
    page.evaluate("(fragment) => { location.hash = fragment; }", fragment)


def drawn_pixels(canvas: Locator) -> int:
    """Return how many pixels of a canvas are neither empty nor nearly so."""
    count = canvas.evaluate(
        """(canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let many = 0;
            for (let at = 3; at < data.length; at += 4) many += data[at] > 128;
            return many;
        }"""
    )
    assert isinstance(count, int)
    return count
