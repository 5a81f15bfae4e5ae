"""Expected against measured gains."""

from __future__ import annotations

import pytest

from actors.planner.core.selection import calibration, gain_of
from actors.planner.core.state import Score
from messages.edits import EditScript, Insert, Update
from messages.facts import BranchClosed
from tests.actors.planner.core.world import WRONG, World, facts_of, measured, search


def expecting(*gains: float | None, parent: str = "n0") -> EditScript:
    return EditScript(
        edits=tuple(
            Insert(
                parent=parent,
                title=f"expects {gain} under {parent}",
                description="d",
                difficulty=1,
                priority=0.9 - index / 10,
                expected_gain=gain,
            )
            for index, gain in enumerate(gains)
        )
    )


def closed(world: World) -> BranchClosed:
    found = facts_of(world, BranchClosed)[-1]
    assert isinstance(found, BranchClosed)
    return found


def test_a_branch_that_closes_says_what_was_expected_and_what_was_measured_over_its_base() -> None:
    world = search(window=1)
    world.propose(expecting(1.5))
    world.attempt("a", measured(1.9, width=0.2))
    world.attempt("a2", WRONG)
    world.propose(expecting(1.3, parent="n1"))
    world.attempt("b", measured(2.9, width=0.2))
    world.attempt("b2", WRONG)
    said = closed(world)
    assert said.expected_gain == 1.3
    assert said.gain == pytest.approx(3.0 / 2.0)
    assert said.gain_interval is not None
    assert said.gain_interval.low == pytest.approx(2.9 / 2.1)
    assert said.gain_interval.high == pytest.approx(3.1 / 1.9)


def test_the_record_counts_what_was_reached_what_was_not_and_what_failed() -> None:
    world = search(window=1, tries=1)
    world.propose(expecting(2.0, 4.0, 1.5, None))
    for text, verdict in (("a", measured(2.0, width=0.0)), ("b", measured(1.0, width=0.0)), ("c", WRONG)):
        world.attempt(text, verdict)
        if verdict is not WRONG:
            world.attempt(text + "2", WRONG)
    world.attempt("d", measured(3.0))
    record = calibration(world.state)
    assert (record.count, record.reached, record.failed) == (2, 1, 1)
    assert record.mean_ratio == pytest.approx(0.5)  # of 1 and a quarter


def test_an_expectation_that_is_revised_after_the_result_does_not_change_the_record() -> None:
    world = search(window=1)
    world.propose(expecting(4.0))
    world.attempt("a", measured(2.0, width=0.0))
    world.attempt("a2", WRONG)
    world.propose(EditScript(edits=(Update(node="n1", expected_gain=2.0),)))
    assert world.state.node("n1").expected_gain == 2.0
    assert calibration(world.state).mean_ratio == pytest.approx(0.5)


def test_a_confirmation_that_says_less_is_what_the_record_goes_by() -> None:
    world = search(window=1, confirm=True)
    world.propose(expecting(3.0))
    world.attempt("a", measured(3.0, width=0.0))
    world.attempt("a2", WRONG)
    world.confirm("a", measured(1.5, width=0.0))
    assert calibration(world.state).mean_ratio == pytest.approx(0.5)


def test_a_confirmation_of_what_an_action_was_built_on_changes_what_that_action_gained() -> None:
    world = search(window=1, confirm=True)
    world.propose(expecting(None))
    world.attempt("a", measured(2.0, width=0.0))
    world.attempt("a2", WRONG)
    world.propose(expecting(1.5, parent="n1"))
    world.attempt("b", measured(1.8, width=0.0))
    world.attempt("b2", WRONG)
    assert calibration(world.state).mean_ratio == pytest.approx(0.9 / 1.5)
    world.confirm("a", measured(1.2, width=0.0))
    assert calibration(world.state).mean_ratio == pytest.approx(1.0)


def test_without_times_there_is_no_gain() -> None:
    assert gain_of(Score(candidate_id="c"), None) is None
    assert gain_of(Score(candidate_id="c", credit=1.0, speedup=1.0), Score(candidate_id="b")) is None


def test_without_an_upper_bound_the_interval_holds_the_gain_still() -> None:
    found = gain_of(Score(candidate_id="c", credit=1.8, speedup=2.0), Score(candidate_id="b", credit=0.9, speedup=1.0))
    assert found is not None
    assert found.interval.low <= found.gain <= found.interval.high
