"""Which node is refined next, and why."""

from __future__ import annotations

import math

import pytest

from actors.planner.core.evolve import evolve
from actors.planner.core.selection import score, select
from actors.planner.core.state import SearchState, frontier
from messages.edits import EditScript, Insert
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    Fact,
    IncumbentChanged,
    NodeInserted,
    WriteRequested,
)
from messages.settings import SearchSettings, Selection
from tests.actors.planner.core.world import World, candidate, inserts, measured


def closed(node_id: str, parent_id: str, credit: float, number: int) -> list[Fact]:
    """A node and the branch that closed it."""
    return [
        insertion(node_id, parent_id),
        BranchStarted(branch_id=f"b{number}", node_id=node_id, base_id=None),
        AttemptFinished(
            branch_id=f"b{number}",
            candidate_id=f"c{number}",
            fate="measured",
            outcome="",
            credit=credit,
            speedup=credit,
            latency_us=1.0,
            round=number,
            improved=True,
        ),
        BranchClosed(branch_id=f"b{number}", node_id=node_id, reason="", best_id=f"c{number}"),
    ]


def insertion(node_id: str, parent_id: str, priority: float = 0.5) -> NodeInserted:
    return NodeInserted(
        node_id=node_id, parent_id=parent_id, title=node_id, description="", difficulty=1, priority=priority
    )


def two_families(**weights: float) -> SearchState:
    """n1 (closed, 3.0x) with n3 in flight and n4 open below it, n2 (closed, 1.0x) with n5 open."""
    world = World(SearchSettings(branches=2, selection=Selection(rule="spread", **weights)))
    facts: list[Fact] = [
        *closed("n1", "n0", 3.0, 1),
        *closed("n2", "n0", 1.0, 2),
        IncumbentChanged(candidate_id="c1", node_id="n1", round=1, credit=3.0, speedup=3.0, latency_us=1.0),
        insertion("n3", "n1"),
        insertion("n4", "n1", 0.61),
        insertion("n5", "n2", 0.6),
        BranchStarted(branch_id="b3", node_id="n3", base_id="c1"),
    ]
    state = world.state
    for fact in facts:
        state = evolve(state, fact)
    return state


def chosen(state: SearchState) -> str:
    node = select(state)
    assert node is not None
    return node.node_id


def test_a_branch_in_flight_makes_its_siblings_less_attractive() -> None:
    assert chosen(two_families(virtual_loss=0.5, exploration=0.0, evidence=0.0)) == "n5"


def test_without_virtual_loss_the_second_branch_goes_where_the_first_went() -> None:
    assert chosen(two_families(virtual_loss=0.0, exploration=0.0, evidence=0.0)) == "n4"


def test_a_parent_near_the_best_is_worth_more_than_one_far_from_it() -> None:
    state = two_families(virtual_loss=0.0, exploration=0.0, evidence=0.5)
    terms = {node.node_id: found for node, found in score(state, frontier(state))}
    assert terms["n5"].evidence == -0.5
    assert terms["n4"].evidence == 0


def test_a_parent_whose_children_were_tried_often_is_explored_less() -> None:
    state = two_families(virtual_loss=0.0, exploration=0.5, evidence=0.0)
    tried = AttemptFinished(branch_id="b3", candidate_id="x", fate="wrong", outcome="", round=3)
    before = {node.node_id: found.exploration for node, found in score(state, frontier(state))}
    after = {node.node_id: found.exploration for node, found in score(evolve(state, tried), frontier(state))}
    assert after["n4"] < before["n4"]
    assert after["n5"] >= before["n5"]


def test_the_total_is_the_sum_of_its_parts() -> None:
    state = two_families()
    for _, terms in score(state, frontier(state)):
        parts = (terms.belief, terms.evidence, terms.exploration, terms.difficulty, terms.load)
        assert terms.total == pytest.approx(sum(parts))


def test_a_part_that_counts_nothing_is_no_negative_zero() -> None:
    """It would be shown as -0.000, as if something spoke against the action."""
    state = two_families(exploration=0.0, evidence=0.0, difficulty=0.0, virtual_loss=0.0)
    for _, terms in score(state, frontier(state)):
        parts = (terms.evidence, terms.exploration, terms.difficulty, terms.load, terms.steering)
        assert not [part for part in parts if part == 0 and math.copysign(1.0, part) < 0]


def test_actions_over_the_difficulty_cap_wait_until_nothing_easier_is_open() -> None:
    world = World(SearchSettings(branches=1, stagnation_window=1, max_difficulty=2))
    edits = (
        Insert(parent="n0", title="hard", description="", difficulty=4, priority=0.9),
        Insert(parent="n0", title="easy", description="", difficulty=2, priority=0.1),
    )
    world.propose(EditScript(edits=edits))
    (branch,) = world.state.branches.values()
    assert branch.node_id == "n2"
    found = select(world.state)
    assert found is not None
    assert found.node_id == "n1"


def test_the_papers_rule_is_the_default_with_one_branch_and_looks_at_v_alone() -> None:
    world = World(SearchSettings(branches=1, stagnation_window=1))
    world.propose(inserts(3))
    for _, terms in score(world.state, frontier(world.state)):
        assert (terms.evidence, terms.exploration, terms.difficulty, terms.load) == (0, 0, 0, 0)


def test_a_node_keeps_the_best_of_its_branch_and_its_extra_sample() -> None:
    world = World(SearchSettings(branches=2, stagnation_window=1))
    world.propose(inserts(1))
    extra = next(branch for branch in world.state.branches.values() if branch.extra)
    main = next(branch for branch in world.state.branches.values() if not branch.extra)
    world.attempt("slow", measured(1.0), branch_id=main.branch_id)
    world.attempt("fast", measured(3.0), branch_id=extra.branch_id)
    world.attempt("slow too", measured(0.9), branch_id=main.branch_id)
    best = world.state.node("n1").best
    assert best is not None
    assert best.candidate_id == candidate("fast").candidate_id


def test_an_extra_sample_is_no_reason_to_call_the_planner() -> None:
    world = World(SearchSettings(branches=2, stagnation_window=9))
    world.propose(inserts(1))
    extra = next(branch for branch in world.state.branches.values() if branch.extra)
    world.propose(EditScript())
    assert world.state.plan is None
    world.attempt("a", measured(1.0), branch_id=extra.branch_id)
    assert world.state.plan is None
    assert world.state.reports
    assert world.requests(WriteRequested)
