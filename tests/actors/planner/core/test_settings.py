"""Settings of the search do what they say, at other values than their defaults."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors.planner.core.selection import belief, select
from messages.edits import EditScript, Insert
from messages.facts import EditsApplied, EditsRefused, PlanAbandoned
from messages.settings import SearchSettings, Selection
from tests.actors.planner.core.world import WRONG, World, facts_of, inserts, only_branch


def begun(**settings: object) -> World:
    return World(replace(SearchSettings(branches=1, stagnation_window=1, repair_window=1, confirm=False), **settings))


def two(first: float, second: float, *, difficulty: int = 1) -> EditScript:
    return EditScript(
        edits=(
            Insert(parent="n0", title="first", description="", difficulty=difficulty, priority=first),
            Insert(parent="n0", title="second", description="", difficulty=1, priority=second),
        )
    )


@pytest.mark.parametrize(("decay", "next_id"), [(1.0, "n1"), (0.5, "n2"), (0.0, "n2")])
def test_failure_decay_is_what_v_is_multiplied_by_for_each_failed_branch(decay: float, next_id: str) -> None:
    world = begun(selection=Selection(failure_decay=decay))
    world.propose(two(0.9, 0.6))
    world.attempt("a", WRONG)
    assert belief(world.state, world.state.node("n1")) == pytest.approx(0.9 * decay)
    assert only_branch(world).node_id == next_id


@pytest.mark.parametrize(("cap", "first_id"), [(5, "n1"), (4, "n1"), (3, "n2")])
def test_max_difficulty_keeps_harder_actions_waiting(cap: int, first_id: str) -> None:
    world = begun(max_difficulty=cap)
    world.propose(two(0.9, 0.1, difficulty=4))
    assert only_branch(world).node_id == first_id


@pytest.mark.parametrize("limit", [2, 5])
def test_max_new_nodes_bounds_a_script_beyond_what_was_asked_for(limit: int) -> None:
    world = begun(max_new_nodes=limit)
    allowed = max(limit, world.plan().wanted)
    world.propose(inserts(allowed + 1))
    (refused,) = (fact for fact in world.facts if isinstance(fact, EditsRefused))
    assert refused.refusals[-1].reason == f"{allowed + 1} new nodes; at most {allowed} in one script"
    world.propose(inserts(allowed))
    assert len(world.state.nodes) == allowed + 1


@pytest.mark.parametrize("times", [0, 1, 3])
def test_refusals_is_how_often_a_script_is_asked_for_again(times: int) -> None:
    world = begun(refusals=times)
    for _ in range(times):
        world.propose(None)
    assert len(facts_of(world, EditsRefused)) == times
    world.propose(None)
    assert facts_of(world, PlanAbandoned)
    assert not facts_of(world, EditsApplied)


def test_greedy_v_is_a_setting_whatever_the_number_of_branches() -> None:
    """`--selection paper`: neither siblings at work nor what was tried often makes any difference."""
    world = begun(branches=2, selection=Selection(rule="paper"))
    edits = (
        Insert(parent="n0", title="best", description="", difficulty=5, priority=0.9),
        Insert(parent="n0", title="next", description="", difficulty=1, priority=0.89),
        Insert(parent="n0", title="last", description="", difficulty=1, priority=0.88),
    )
    world.propose(EditScript(edits=edits))
    assert {branch.node_id for branch in world.state.branches.values()} == {"n1", "n2"}
    node = select(world.state)
    assert node is not None
    assert node.node_id == "n3"
