"""Edit scripts: what is refused, what is applied, and what is no conflict."""

from __future__ import annotations

import msgspec
import pytest

from messages.edits import EditScript, Insert, Proposal, Prune, Split, Update
from messages.facts import EditsApplied, EditsRefused, NodeInserted
from tests.actors.planner.core.world import (
    WRONG,
    facts_of,
    inserts,
    measured,
    only_branch,
    search,
)


def test_a_script_with_a_conflict_is_refused_whole_and_asked_for_again_with_reasons() -> None:
    world = search()
    bad = EditScript(
        edits=(
            Insert(parent="n0", title="fine", description="", difficulty=1, priority=0.5),
            Insert(parent="n77", title="lost", description="", difficulty=1, priority=0.5),
        )
    )
    world.propose(bad)
    assert len(world.state.nodes) == 1
    again = world.plan()
    assert again.tries == 1
    assert [refusal.index for refusal in again.refusals] == [1]
    assert "n77" in again.refusals[0].reason
    world.propose(inserts(1))
    assert len(world.state.nodes) == 2


def test_after_the_last_refusal_what_depends_on_nothing_refused_is_applied() -> None:
    world = search()
    bad = EditScript(
        edits=(
            Insert(parent="n77", title="lost", description="", difficulty=1, priority=0.5, key="k"),
            Insert(parent="k", title="child of lost", description="", difficulty=1, priority=0.5),
            Insert(parent="n0", title="fine", description="", difficulty=1, priority=0.5),
        )
    )
    for _ in range(3):
        world.propose(bad)
    assert len(facts_of(world, EditsRefused)) == 2
    (applied,) = (fact for fact in world.facts if isinstance(fact, EditsApplied))
    assert [change.title for change in applied.changes if isinstance(change, NodeInserted)] == ["fine"]
    assert [refusal.index for refusal in applied.refusals] == [0, 1]


def test_an_answer_that_is_no_script_is_refused_like_a_script() -> None:
    world = search()
    world.propose(None)
    assert world.plan().refusals[0].reason == "not JSON"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (EditScript(edits=(Update(node="n9", priority=0.1),)), "does not exist"),
        (EditScript(edits=(Update(node="n1"),)), "nothing to change"),
        (EditScript(edits=(Prune(node="n0", reason="x"),)), "is the root"),
        (inserts(1), "is called 'idea 0' already"),
        (inserts(20, prefix="many"), "20 new nodes; at most"),
    ],
)
def test_conflicts_are_named(script: EditScript, reason: str) -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("a", WRONG)
    world.propose(script)
    assert any(reason in refusal.reason for refusal in world.plan().refusals)


def test_what_the_machine_did_meanwhile_is_no_conflict() -> None:
    world = search(branches=1, window=1)
    world.propose(inserts(2))
    world.attempt("a", measured(2.0))
    world.attempt("a2", measured(1.9))
    in_flight = only_branch(world).node_id
    world.propose(EditScript(edits=(Prune(node=in_flight, reason="no use"), Prune(node="n1", reason="done"))))
    assert world.state.node(in_flight).state == "in_flight"
    assert world.state.node("n1").spent
    world.attempt("b", WRONG)
    assert world.state.node(in_flight).state == "pruned"


def test_a_child_of_a_node_that_was_given_up_hangs_under_its_living_ancestor() -> None:
    world = search(window=1, tries=1)
    world.propose(inserts(1))
    world.attempt("a", WRONG)
    assert world.state.node("n1").given_up
    world.propose(inserts(1, parent="n1", prefix="child"))
    assert world.state.node("n2").parent_id == "n0"


def test_a_node_is_not_renamed_to_what_a_living_sibling_is_called() -> None:
    world = search(window=1)
    world.propose(inserts(3))
    world.attempt("a", WRONG)
    world.propose(EditScript(edits=(Update(node="n2", title=" Idea 0"),)))
    assert "is called ' Idea 0' already" in world.plan().refusals[0].reason
    swapped = (Update(node="n2", title="other"), Update(node="n3", title="idea 1"), Update(node="n1", title="IDEA 0"))
    world.propose(EditScript(edits=swapped))
    assert [world.state.node(name).title for name in ("n1", "n2", "n3")] == ["IDEA 0", "other", "idea 1"]


def test_a_child_of_a_node_that_was_given_up_is_compared_with_those_beside_which_it_hangs() -> None:
    world = search(window=1, tries=1)
    world.propose(inserts(2))
    world.attempt("a", WRONG)
    assert world.state.node("n1").given_up
    world.propose(inserts(2, parent="n1"))
    assert "n2 under 'n1' is called 'idea 1' already" in world.plan().refusals[0].reason
    keyed = Insert(parent="n1", title="new", description="", difficulty=1, priority=0.5)
    world.propose(EditScript(edits=(keyed, msgspec.structs.replace(keyed, parent="n0"))))
    assert "another insert under 'n0' is called 'new' already" in world.plan().refusals[0].reason


def test_splitting_replaces_a_node_by_smaller_ones() -> None:
    world = search(window=1)
    world.propose(inserts(2))
    world.attempt("a", WRONG)
    parts = (
        Proposal(title="part 0", description="", difficulty=1, priority=0.4),
        Proposal(title="part 1", description="", difficulty=1, priority=0.4),
    )
    world.propose(EditScript(edits=(Split(node="n1", into=parts),)))
    assert world.state.node("n1").state == "pruned"
    assert world.state.node("n1").children == ()
    assert [world.state.node(name).title for name in ("n3", "n4")] == ["part 0", "part 1"]
