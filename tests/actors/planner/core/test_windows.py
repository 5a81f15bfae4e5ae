"""When a branch ends: not correct yet, and correct but not faster, are counted apart."""

from __future__ import annotations

import pytest

from messages.facts import BranchClosed
from tests.actors.planner.core.world import WRONG, World, facts_of, inserts, measured, only_branch, search


def tried(world: World, count: int, *, first: int = 0) -> None:
    for number in range(first, first + count):
        world.attempt(f"wrong {number}", WRONG)


@pytest.mark.parametrize(("repair_window", "failures"), [(None, 3), (1, 1), (5, 5)])
def test_a_branch_without_a_correct_candidate_has_a_window_of_its_own(repair_window: int | None, failures: int) -> None:
    world = search(window=3, repair_window=repair_window)
    world.propose(inserts(1))
    tried(world, failures - 1)
    assert world.state.branches
    tried(world, 1, first=failures)
    (closed,) = (fact for fact in world.facts if isinstance(fact, BranchClosed))
    assert closed.reason == f"{failures} attempts without a correct candidate"


def test_the_first_correct_candidate_begins_the_other_window() -> None:
    world = search(window=2, repair_window=4)
    world.propose(inserts(1))
    tried(world, 3)
    world.attempt("a", measured(1.0))
    assert only_branch(world).stale == 0
    world.attempt("b", WRONG)
    assert not facts_of(world, BranchClosed)
    world.attempt("c", measured(0.5))
    (closed,) = (fact for fact in world.facts if isinstance(fact, BranchClosed))
    assert closed.reason == "2 attempts without improvement"


def test_a_correct_candidate_restarts_nothing_unless_its_lower_bound_is_above_the_best_one_s_speedup() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0, width=0.4))  # 2.2x
    world.attempt("b", measured(2.15, width=0.4))
    assert only_branch(world).stale == 1
    world.attempt("c", measured(2.36, width=0.4))  # over 2.35x, what b has
    assert only_branch(world).stale == 0
