"""The page says what there is to say, holds everything itself, and lets nothing of a stranger's become markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import RunConfig, save_config
from ksearch_async.views.report.page import Dossier, dossier_of, page_of
from messages.base import ConfigError
from messages.codec import Record
from messages.settings import SearchSettings
from tests.ksearch_async.stories import on_disk, sequel, story, untimed_story
from tests.ksearch_async.views.report.recorded import gpu_records, hostile, priced, seeded
from tests.ksearch_async.views.report.test_markup import Parts


def read(folder: Path, records: list[Record], run_id: str = "mine") -> Dossier:
    return dossier_of(on_disk(folder, records, run_id))


def identifiers(html: str) -> list[str]:
    return re.findall(r'\sid="([^"]*)"', html)


@pytest.fixture(scope="module")
def gpu_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of([read(tmp_path_factory.mktemp("runs"), gpu_records("softmax_rows_1_h200"), "softmax")])


def test_the_page_of_a_run_says_what_was_found_and_how_it_was_measured(gpu_page: str) -> None:
    text = " ".join(Parts(gpu_page).text.split())
    for said in (
        "softmax_rows:gpu on NVIDIA H200",
        "2.11x as fast as the reference (95 % interval 2.11 to 2.12)",
        "torch.compile",
        "40 pairs in all",
        "landlock",
        "a second, confirming measurement",
        "calls on fresh inputs, expected values in float64",
        "1 of 2 candidates",
        "triton 3.6.0",
        "rules.library_calls",
        "ksearch run softmax_rows:gpu",
        "ksearch replay softmax",
        "Made of the journal alone",
        "Not all prices are known",
    ):
        assert said in text, said
    assert text.count("rejected") >= 11


def test_a_page_holds_all_that_it_needs_and_asks_for_nothing(gpu_page: str) -> None:
    seen = Parts(gpu_page)
    policy = next(dict(attributes) for tag, attributes in seen.tags if tag == "meta" and len(attributes) == 2)
    assert "default-src 'none'" in (policy["content"] or "")
    assert {tag for tag, _ in seen.tags} & {"script", "link", "img", "iframe", "object", "base", "form"} == set()
    for tag, attributes in seen.tags:
        for name, value in attributes:
            assert not name.startswith("on")
            assert name not in ("src", "href", "xlink:href") or (value or "").startswith("#"), (tag, value)
    assert not re.search(r"url\((?!#)|@import", gpu_page)


def test_the_identifiers_of_its_figures_do_not_meet(gpu_page: str) -> None:
    found = identifiers(gpu_page)
    assert len(found) == len(set(found))
    used = {*re.findall(r'href="#([^"]+)"', gpu_page), *re.findall(r"url\(#([^)]+)\)", gpu_page)}
    assert used <= set(found)


def test_figures_have_the_pages_colours(gpu_page: str) -> None:
    drawn = gpu_page.partition("<body>")[2]
    assert drawn.count("<svg") == 4
    assert "var(--ink)" in drawn
    assert not re.search(r"(?:fill|stroke): #(?!000000)", drawn)


def test_the_same_journal_gives_the_same_page(tmp_path: Path) -> None:
    assert page_of([read(tmp_path / "a", story())]) == page_of([read(tmp_path / "b", story())])


def test_hostile_texts_become_text_and_lines_of_a_megabyte_are_cut(tmp_path: Path) -> None:
    html = page_of([read(tmp_path, hostile())])
    seen = Parts(html)
    assert "<script>alert(1)</script>" in seen.text
    assert not any(tag == "script" for tag, _ in seen.tags)
    assert not {"\x1b", "\u202e", "\u2066"} & set(html)
    assert "more characters)" in seen.text
    assert len(html) < 600_000


def test_runs_of_one_task_are_compared_first_and_then_told_one_by_one(tmp_path: Path) -> None:
    dossiers = [
        read(tmp_path, priced(story(), 0.25), "first"),
        read(tmp_path, priced(seeded(sequel(), 1), 0.25), "second"),
    ]
    html = page_of(dossiers)
    text = " ".join(Parts(html).text.split())
    assert text.index("best speedup") < text.index("The best kernel is 2.00x") < text.index("The best kernel is 2.50x")
    assert "$0.6250 ($0.5000 to $0.7500)" in text
    assert len(identifiers(html)) == len(set(identifiers(html)))
    assert {"run1", "run2"} <= set(identifiers(html))


def test_runs_of_several_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="different tasks"):
        page_of([read(tmp_path, story(), "a"), read(tmp_path, gpu_records("softmax_rows_1_h200"), "b")])


@pytest.mark.parametrize("records", [untimed_story(), story(stopped_by=None)[:1]], ids=["untimed", "just begun"])
def test_a_run_without_a_best_has_a_page_too(records: list[Record], tmp_path: Path) -> None:
    text = Parts(page_of([read(tmp_path, records)])).text
    assert "No candidate was correct and timed" in text
    assert "There is none." in text


def test_a_kernel_stands_beside_what_it_was_started_from(tmp_path: Path) -> None:
    html = page_of([read(tmp_path, sequel())])
    assert '<span class="added">+#include &lt;rows.h&gt;</span>' in html
    assert "rows.h" in Parts(html).text


def test_the_command_has_the_flags_of_what_is_not_as_usual(tmp_path: Path) -> None:
    run = on_disk(tmp_path, story())
    search = SearchSettings(branches=2, confirm=False, max_tries=7)
    save_config(RunConfig(task="my relu.py", search=search, seed=3), run.config)
    dossier = dossier_of(RunFolder(run.path))
    assert dossier.commands[0] == "ksearch run 'my relu.py' --seed 3 --branches 2 --no-confirm"
    assert dossier.unsaid == ("search.max_tries = 7",)
    assert dossier.has_config


def test_what_the_gpu_does_in_a_call_of_the_best_is_told_kernel_by_kernel(tmp_path: Path) -> None:
    text = " ".join(Parts(page_of([read(tmp_path, hostile())])).text.split())
    assert "50.0 us from the first kernel to the last, the GPU idle for 20%; 75% of it in the candidate's own" in text
    cells = ("3", "64", "128", "77", "0", "0", "0%", "1.5")
    assert "".join(("75%", "30.0", *cells, "its own")) in text
    assert "".join(("25%", "10.0", *cells, "library", "library")) in text
