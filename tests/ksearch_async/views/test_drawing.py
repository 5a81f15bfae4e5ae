"""The tree as lines: what leads to the best kernel is marked, and every line fits the terminal."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.planner.core.state import Score, SearchState
from ksearch_async.runs.run import Run
from ksearch_async.views.text import columns_of
from ksearch_async.views.tree_layout import tree_lines
from tests.ksearch_async.stories import decided, inserted, records_of, sequel, story


def state_of(extra: int = 0) -> SearchState:
    """Return the sequel's state with a chain of `extra` more actions below it."""
    records = sequel()
    chain = [
        decided(inserted(f"n{number}", f"n{number - 1}", f"an action number {number} with a rather long title"))
        for number in range(3, 3 + extra)
    ]
    chronicle = Run()
    for record in records + records_of(chain, after=len(records)):
        chronicle.fold(record)
    return chronicle.state


def test_the_best_kernels_node_and_those_above_it_are_marked() -> None:
    assert list(tree_lines(state_of())) == [
        "n0 reference",
        "└── n1 ☆ fuse the passes  [in flight, V 0.80, 1 wrong]",
        "    └── n2 ★ split the rows  [2.50x, in flight, V 0.80]",
    ]


def test_what_nobody_works_on_any_more_was_cut_off() -> None:
    assert list(tree_lines(state_of(), at_work=False))[1:] == [
        "└── n1 ☆ fuse the passes  [cut off, V 0.80, 1 wrong]",
        "    └── n2 ★ split the rows  [2.50x, cut off, V 0.80]",
    ]


@pytest.mark.parametrize("width", [24, 40, 80, 120])
@pytest.mark.parametrize("extra", [0, 3, 30])
def test_no_line_is_wider_than_the_terminal_where_the_tree_is_not_deeper_than_it(width: int, extra: int) -> None:
    lines = list(tree_lines(state_of(extra), width=width))
    assert len(lines) == 3 + extra
    assert all(len(line) <= width for line in lines)


def test_a_deep_tree_is_indented_less() -> None:
    shallow, deep = (list(tree_lines(state_of(extra), width=80))[-1] for extra in (1, 20))
    assert shallow.startswith("        └── n3")
    assert deep.startswith(" " * 2 * 21 + "└ n22")


def test_a_title_gives_way_before_the_result_does() -> None:
    line = list(tree_lines(state_of(), width=40))[2]
    assert line == "    └── n2 ★ split the rows  [2.50x]"


def test_what_lies_deeper_than_asked_is_counted() -> None:
    assert list(tree_lines(state_of(3), depth=1))[-1].endswith("(+4 below)")
    assert list(tree_lines(state_of(3), depth=0)) == ["n0 reference (+5 below)"]


def test_a_run_without_a_tree_draws_nothing() -> None:
    chronicle = Run()
    chronicle.fold(story()[0])
    assert list(tree_lines(chronicle.state)) == []


def test_a_result_of_which_only_the_lower_end_is_known_is_told_as_the_least() -> None:
    state = state_of()
    node = state.node("n1")
    for high, said in ((1.2, "1.20x"), (9.0, "at least 1.20x")):
        best = Score(candidate_id="c", credit=1.2, speedup=1.2, speedup_high=high)
        known = replace(state, nodes=state.nodes.insert("n1", replace(node, best=best)))
        assert f"[{said}, in flight" in list(tree_lines(known))[1]


def test_edges_stay_where_they_are_when_there_is_room_for_a_few_letters_only() -> None:
    second = decided(inserted("n3", "n1", "another action with a rather long title"))
    records = sequel()
    chronicle = Run()
    for record in [*records, *records_of([second], after=len(records))]:
        chronicle.fold(record)
    assert list(tree_lines(chronicle.state, width=28))[2:] == [
        "    ├── n2 ★ split the rows",
        "    └── n3 another action w…",
    ]


def test_a_result_stays_before_the_count_of_what_lies_below() -> None:
    assert list(tree_lines(state_of(3), width=38, depth=2))[2] == "    └── n2 ★ split the rows  [2.50x]"
    assert list(tree_lines(state_of(3), width=60, depth=2))[2].endswith("[2.50x] (+3 below)")


def test_titles_of_wide_signs_are_cut_by_the_columns_that_they_take() -> None:
    titled = decided(inserted("n3", "n1", "行列の積を融合する" * 9))
    records = sequel()
    chronicle = Run()
    for record in [*records, *records_of([titled], after=len(records))]:
        chronicle.fold(record)
    line = list(tree_lines(chronicle.state, width=60))[3]
    assert columns_of(line) in (59, 60)
    assert line.endswith("…  [open, V 0.80]")
