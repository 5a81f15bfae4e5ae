"""Actions with a second parent: what may be merged, and what a coder is given."""

from __future__ import annotations

import pytest

from messages.edits import EditScript, Insert
from messages.facts import BranchStarted, EditsRefused
from messages.verdicts import Crashed
from tests.actors.planner.core.world import WRONG, World, candidate, facts_of, inserts, measured, only_branch, search


def insert(parent: str, merge: str = "", *, title: str = "both", key: str = "", priority: float = 0.9) -> Insert:
    return Insert(parent=parent, merge=merge, title=title, description="d", difficulty=2, priority=priority, key=key)


def two_results() -> World:
    """n1 and n2 closed under the root, n3 closed under n1, n4 open."""
    world = search(window=1)
    world.propose(inserts(2))
    for text, credit in (("a", 2.0), ("a2", 1.9)):
        world.attempt(text, measured(credit))
    world.propose(EditScript(edits=(insert("n1", title="child"),)))
    for text, credit in (("b", 1.5), ("b2", 1.4)):
        world.attempt(text, measured(credit))
    world.propose(EditScript(edits=(insert("n2", title="open", priority=0.1),)))
    for text, credit in (("c", 2.5), ("c2", 2.4)):
        world.attempt(text, measured(credit))
    assert {node_id: world.state.node(node_id).state for node_id in ("n1", "n2", "n3")} == {
        "n1": "closed", "n2": "closed", "n3": "closed",
    }  # fmt: skip
    return world


def test_a_branch_with_a_second_parent_begins_with_both_candidates() -> None:
    world = two_results()
    world.propose(EditScript(edits=(insert("n3", "n2"),)))
    world.attempt("d", WRONG)  # at n4
    branch = only_branch(world)
    assert world.state.node(branch.node_id).second_id == "n2"
    assert branch.base == world.state.node("n3").best
    assert branch.second == world.state.node("n2").best
    begun = [fact for fact in world.facts if isinstance(fact, BranchStarted)][-1]
    assert branch.second is not None
    assert begun.second_id == branch.second.candidate_id


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ((insert("n3", "n99"),), "is no node"),
        ((insert("n3", "n0"),), "is no node"),
        ((insert("n3", "n4"),), "has no correct candidate"),
        ((insert("n3", "n1"),), "lies on the path"),
        ((insert("n3", "n3"),), "lies on the path"),
        ((insert("n1", "n3"),), "builds on 'n1' already"),
        ((insert("n3", title="first", key="k"), insert("k", "n1")), "lies on the path"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_reason(edits: tuple[Insert, ...], said: str) -> None:
    world = two_results()
    world.propose(EditScript(edits=edits))
    (refused,) = (fact for fact in world.facts if isinstance(fact, EditsRefused))
    assert said in refused.refusals[-1].reason


def test_a_new_action_may_be_a_parent_of_a_merge() -> None:
    world = two_results()
    world.propose(EditScript(edits=(insert("n3", title="first", key="k"), insert("k", "n2"))))
    assert not facts_of(world, EditsRefused)


def test_inserts_that_name_each_other_are_refused_and_end() -> None:
    world = two_results()
    world.propose(EditScript(edits=(insert("b", "n2", key="a"), insert("a", "n2", key="b"))))
    assert facts_of(world, EditsRefused)


def test_a_second_parent_that_was_refuted_meanwhile_is_left_out() -> None:
    world = search(window=1, confirm=True)
    world.propose(inserts(2))
    world.attempt("a", measured(2.0))
    world.confirm("a", measured(2.0))
    world.attempt("a2", WRONG)
    world.propose(EditScript())
    world.attempt("b", measured(3.0))
    world.attempt("b2", WRONG)
    assert world.state.node("n2").best is not None
    world.propose(EditScript(edits=(insert("n1", "n2"),)))
    world.attempt("c", WRONG)  # at what was begun meanwhile
    branch = only_branch(world)
    assert branch.second is not None
    assert branch.second.candidate_id == candidate("b").candidate_id
    world.confirm("b", Crashed(reason="signal 11"))
    assert only_branch(world).second is None
