"""What holds of every figure, over real journals: it is drawn, looks the same again, and nothing breaks out of it."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ksearch_async.runs.run import Run
from ksearch_async.views.report import ink
from ksearch_async.views.report.curves import best_so_far, search_trace
from ksearch_async.views.report.data import Series
from ksearch_async.views.report.gallery import Drawn, pictures_of, rendered
from ksearch_async.views.report.search_tree import rows_shown, tree
from ksearch_async.views.report.workloads import fractions, workloads
from messages.codec import Record
from tests.ksearch_async.stories import decided, inserted, records_of, sequel, story, untimed_story
from tests.ksearch_async.views.report.recorded import (
    alone,
    gpu_records,
    hostile,
    priced,
    seeded,
    timed,
    with_workloads,
)

SHAPES = with_workloads(timed("small", 1.2), timed("large", 8.0, baseline=2.0))
DRAW = """
from hashlib import blake2b
from ksearch_async.views.report.gallery import pictures_of, rendered
from tests.ksearch_async.views.report.recorded import alone, timed, with_workloads
records = with_workloads(timed("small", 1.2), timed("large", 8.0, baseline=2.0))
for picture in pictures_of(alone(records)):
    for form in ("svg", "png") if picture.name == "workloads" else ("svg",):
        print(picture.name, form, blake2b(rendered(picture, form)).hexdigest())
"""


def names(series: list[Series]) -> list[str]:
    return [picture.name for picture in pictures_of(series)]


@pytest.mark.parametrize(
    ("figure", "records"),
    [
        (search_trace, gpu_records("softmax_rows_1_h200")),
        (best_so_far, sequel()),
        (workloads, SHAPES),
        (fractions, SHAPES),
        (tree, gpu_records("softmax_rows_1_h200")),
    ],
    ids=lambda value: getattr(value, "__name__", "").rpartition(".")[2],
)
def test_a_figure_is_drawn_with_title_and_caption_and_the_same_again(figure: Drawn, records: list[Record]) -> None:
    pictures = list(pictures_of(alone(records), [figure]))
    assert pictures
    for picture in pictures:
        assert re.fullmatch(r"[a-z0-9-]+", picture.name)
        assert picture.title
        assert picture.caption.endswith(".")
        svg = rendered(picture, "svg")
        assert svg == rendered(picture, "svg")
        assert len(ElementTree.fromstring(svg).findall(".//{*}path")) > 10  # noqa: S314 - our own


def test_another_process_draws_the_same_bytes_whatever_its_hashes_and_settings(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: red\nfont.size: 30\nsvg.hashsalt: mine\n")
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", DRAW],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "PYTHONHASHSEED": seed, "MATPLOTLIBRC": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here: dict[str, object] = {"print": lambda *words: told.append(" ".join(map(str, words)))}
    told: list[str] = []
    exec(DRAW, here)  # noqa: S102 - the same lines, in this process
    assert done.stdout.splitlines() == told
    assert len(told) == 7


def test_files_hold_no_dates_versions_or_texts() -> None:
    (picture,) = pictures_of(alone(SHAPES), [workloads])
    svg, png = rendered(picture, "svg"), rendered(picture, "png")
    assert b"<text" not in svg
    assert not re.search(rb"Matplotlib|<dc:date|<dc:creator", svg)
    assert not re.search(rb"Matplotlib|tIME|tEXt", png)
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24])[0] == round(200 * ink.WIDE)


def test_one_run_has_one_picture_of_each_kind_and_dollars_only_with_prices() -> None:
    assert names(alone(story())) == ["search-trace", "best-so-far-rounds", "best-so-far-time", "workloads", "tree"]
    assert "best-so-far-dollars" in names(alone(priced(story(), 0.5)))
    assert "fractions" in names(alone(SHAPES))
    assert names(alone(untimed_story())) == ["search-trace", "tree"]
    assert names(alone(story()[:1])) == []


def test_several_runs_have_a_trace_and_a_tree_each_and_the_rest_together() -> None:
    series = [Series(label="A", runs=(Run.of(story()), Run.of(seeded(sequel(), 1)))), *alone(story()[:6])]
    assert names(series) == [
        "search-trace-1",
        "search-trace-2",
        "best-so-far-rounds",
        "best-so-far-time",
        "workloads",
        "tree-1",
        "tree-2",
        "tree-3",
    ]


def test_bands_and_groups_are_drawn_with_a_name_each() -> None:
    band = Series(label="A: branches 4 (2 runs)", runs=(Run.of(story()), Run.of(seeded(sequel(), 1))))
    without_best = Series(label="B: branches 8 (1 run)", runs=(Run.of(story()[:6]),))
    (picture, _) = pictures_of([band, without_best], [best_so_far])
    svg = rendered(picture, "svg").decode()
    assert "A: branches 4 (2 runs)" in svg  # as a comment beside the shapes
    assert "B: branches 8 (1 run); 1 without a best" in svg


def test_hostile_texts_are_drawn_as_shapes_and_break_nothing() -> None:
    for picture in pictures_of(alone(hostile())):
        svg = rendered(picture, "svg")
        root = ElementTree.fromstring(svg)  # noqa: S314
        assert not root.findall(".//{*}script"), picture.name
        assert b"<script" not in svg


def test_a_large_tree_keeps_the_way_to_the_best_and_says_what_it_left_out() -> None:
    told = story(stopped_by=None)
    crowd = decided(*(inserted(f"n{number}", "n1" if number % 2 else "n0", "more") for number in range(2, 200)))
    trace = Run.of([*told, *records_of([crowd], after=len(told))])
    lines = rows_shown(trace)
    assert len(lines) == 80
    assert [line.node.node_id for line in lines[:2]] == ["n0", "n1"]
    assert len(lines) + sum(line.hidden for line in lines) == len(trace.state.nodes) == 200
    (picture,) = tree([Series(label="1 run", runs=(trace,))])
    assert "120 of 200 are left out" in picture.caption


def test_texts_are_shown_with_boxes_for_what_the_font_has_not() -> None:
    assert ink.shown("a\u202eb\x1b列 \u00e9", 20) == "a\ufffdb\ufffd\ufffd é"
    assert ink.shown("word " * 20, 12) == "word word w…"
