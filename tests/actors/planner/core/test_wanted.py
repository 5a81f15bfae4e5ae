"""How many new actions the planner's model is asked for."""

from __future__ import annotations

from actors.planner.core.scheduling import _wanted
from actors.planner.core.state import SearchState


def wanted(slots: int, open_nodes: int, begun: int) -> int:
    return _wanted(SearchState(begun=begun), slots, open_nodes)


def test_twice_the_slots_are_kept_open() -> None:
    assert wanted(slots=4, open_nodes=3, begun=2) == 5
    assert wanted(slots=4, open_nodes=9, begun=2) == 0


def test_what_was_used_up_while_the_last_answer_was_awaited_is_asked_for_twice() -> None:
    assert wanted(slots=64, open_nodes=10, begun=60) == 118  # fewer than slots: as ever
    assert wanted(slots=64, open_nodes=150, begun=90) == 94  # none is at work: 64 slots are idle


def test_one_answer_is_asked_for_no_more_than_twice_the_slots() -> None:
    assert wanted(slots=64, open_nodes=0, begun=500) == 128
    assert wanted(slots=4, open_nodes=0, begun=500) == 16


def test_a_search_of_one_branch_waits_for_its_planner_and_needs_no_more() -> None:
    assert wanted(slots=1, open_nodes=0, begun=5) == 2
