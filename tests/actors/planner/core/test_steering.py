"""What people order of a search, in the pure core: what it changes, what is refused, and what the model cannot undo."""

from __future__ import annotations

import msgspec
import pytest

from actors.planner.core.scripts import conflicts
from actors.planner.core.selection import ranking, select
from actors.planner.core.steering import MAX_CANDIDATE_BYTES, MAX_INSTRUCTION_CHARS, MAX_INSTRUCTIONS, cleaned
from messages.base import ROOT
from messages.edits import Edit, EditScript, Insert, Proposal, Prune, Split, Update
from messages.events import PauseRequested, RunResumed, StopRequested
from messages.facts import BranchClosed, NodeInserted, PlanRequested, RunFinished, WriteRequested
from messages.settings import SearchSettings
from messages.steering import Boost, Forbid, Forget, Inject, Instruct, InstructionGiven, Pin, Release, Steering
from tests.actors.planner.core.orders import GOOD, begun, facts_of, fail_branch, order, refusal, revise, started_on
from tests.actors.planner.core.world import WRONG, World, candidate, inserts, measured, search, writes


def test_a_pinned_action_is_chosen_next_whatever_its_score_and_once() -> None:
    world = begun()
    revise(world, EditScript(edits=(Update(node="n3", priority=0.0, difficulty=5),)))
    order(world, Pin(node_id="n3"))
    assert select(world.state) == world.state.node("n3")
    fail_branch(world)
    assert started_on(world) == ["n1", "n3"]
    assert not world.state.node("n3").pinned
    fail_branch(world)
    assert started_on(world)[2] != "n3"


def test_of_several_pinned_actions_the_first_pinned_comes_first() -> None:
    world = begun(4)
    order(world, Pin(node_id="n4"))
    order(world, Pin(node_id="n3"))
    order(world, Pin(node_id="n4"))
    fail_branch(world)
    fail_branch(world)
    assert started_on(world) == ["n1", "n4", "n3"]


def test_a_pinned_action_above_the_largest_difficulty_is_chosen() -> None:
    world = World(SearchSettings(branches=1, max_difficulty=1, confirm=False))
    world.propose(inserts(2))
    revise(world, EditScript(edits=(Update(node="n2", difficulty=5),)))
    order(world, Pin(node_id="n2"))
    assert select(world.state) == world.state.node("n2")


def test_an_action_below_one_without_a_candidate_waits_for_it_pinned_or_not() -> None:
    world = begun()
    revise(world, inserts(1, "n2", prefix="below"))
    order(world, Pin(node_id="n4"))
    fail_branch(world)
    assert started_on(world) == ["n1", "n2"]
    world.attempt("good", measured(GOOD))
    fail = [branch.branch_id for branch in world.state.branches.values()]
    while fail[0] in world.state.branches:
        world.attempt(f"worse {world.state.rounds}", measured(0.5))
    assert started_on(world)[2] == "n4"


def test_a_pruned_action_that_is_pinned_is_open_again() -> None:
    world = begun()
    revise(world, EditScript(edits=(Prune(node="n3", reason="no use"),)))
    assert world.state.node("n3").state == "pruned"
    order(world, Pin(node_id="n3"))
    fail_branch(world)
    assert started_on(world) == ["n1", "n3"]


def test_a_boost_is_added_to_the_score_and_shown_and_the_latest_counts() -> None:
    world = begun()
    order(world, Boost(node_id="n3", by=0.1))
    order(world, Boost(node_id="n3", by=0.3))
    (first, terms), *_ = ranking(world.state)
    assert (first.node_id, terms.steering) == ("n3", 0.3)
    assert terms.total == pytest.approx(terms.belief + 0.3)
    assert select(world.state) == first
    order(world, Release(node_id="n3"))
    assert [node.node_id for node, _ in ranking(world.state)] == ["n2", "n3"]


@pytest.mark.parametrize("branches", [1, 4])
def test_the_ranking_is_in_the_order_of_choice(branches: int) -> None:
    world = begun(8, branches=branches)
    order(world, Boost(node_id="n7", by=-0.4))
    order(world, Pin(node_id="n6"))
    order(world, Boost(node_id="n5", by=0.2))
    first = ranking(world.state)[0][0]
    assert first == select(world.state)
    assert first.node_id == "n6"


def test_a_forbidden_action_is_never_chosen_nor_any_below_it_also_later_ones() -> None:
    world = begun(2)
    world.attempt("good", measured(GOOD))
    revise(world, inserts(2, "n1", prefix="below"))
    order(world, Forbid(node_id="n1", reason="patented"))
    assert {node.node_id for node in world.state.nodes.values() if node.barred} == {"n1", "n3", "n4"}
    (reason,) = conflicts(world.state, inserts(1, "n3", prefix="deeper"), limit=9)
    assert "lies below a node that was forbidden by a person" in reason.reason
    for _ in range(40):
        if not world.state.running:
            break
        if world.state.plan:
            world.propose(EditScript())
        for number, write in enumerate(writes(world)):
            if write.job_id in world.state.jobs:
                world.attempt(f"{write.job_id} {number}", WRONG, branch_id=write.branch_id)
    assert set(started_on(world)) >= {"n1", "n2"}
    assert not {"n3", "n4"} & set(started_on(world))
    assert not [node for node in facts_of(world, NodeInserted) if node.parent_id in {"n1", "n3", "n4"} - {"n1"}]


def test_a_branch_on_a_forbidden_action_ends_after_the_attempt_under_way() -> None:
    world = begun(2)
    order(world, Forbid(node_id="n1"))
    assert not facts_of(world, BranchClosed)
    world.attempt("one", measured(GOOD))
    (closed,) = facts_of(world, BranchClosed)
    assert closed.reason == "its node was forbidden"
    assert world.state.node("n1").state == "closed"
    assert started_on(world) == ["n1", "n2"]


def test_forbidden_open_actions_are_no_supply() -> None:
    world = begun(4)
    revise(world, EditScript(edits=(Update(node="n1", priority=0.9),)))
    assert world.state.plan is None
    for node_id in ("n2", "n3", "n4"):
        order(world, Forbid(node_id=node_id))
    fail_branch(world)
    assert world.state.plan is not None
    assert world.state.plan.wanted > 0


def test_what_is_released_is_chosen_again_but_not_what_another_ban_covers() -> None:
    world = begun(2)
    world.attempt("good", measured(GOOD))
    revise(world, inserts(1, "n1", prefix="below"))
    order(world, Forbid(node_id="n3"))
    order(world, Forbid(node_id="n1"))
    order(world, Release(node_id="n3"))
    assert world.state.node("n3").barred
    order(world, Release(node_id="n1"))
    assert not any(node.barred for node in world.state.nodes.values())
    order(world, Forbid(node_id="n3"))
    order(world, Forbid(node_id="n1"))
    order(world, Release(node_id="n1"))
    assert world.state.node("n3").barred
    assert not world.state.node("n1").barred


@pytest.mark.parametrize(
    ("steering", "reason"),
    [
        (Pin(node_id="n9"), "node 'n9' does not exist"),
        (Pin(node_id=ROOT), "'n0' is the root, and no action: name a node below it"),
        (Pin(node_id="n1"), "node 'n1' is in flight already"),
        (Boost(node_id="n2", by=float("nan")), "not by nan"),
        (Boost(node_id="n2", by=1.5), "not by 1.5"),
        (Forbid(node_id=ROOT), "'n0' is the root"),
        (Release(node_id="n2"), "nothing was ordered for node 'n2'"),
        (Forget(number=1), "there is no instruction 1"),
        (Instruct(text=" \x1b\x07\u202e\n "), "the instruction is empty"),
        (Instruct(text="x" * (MAX_INSTRUCTION_CHARS + 1)), "at most 4000 are taken"),
        (Inject(candidate=candidate("mine"), node_id="n9"), "node 'n9' does not exist"),
        (Inject(candidate=candidate("x" * (MAX_CANDIDATE_BYTES + 1))), "bytes; at most"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused_with_the_reason_and_changes_nothing(
    steering: Steering, reason: str
) -> None:
    assert reason in refusal(begun(), steering)


def test_closed_and_forbidden_actions_cannot_be_pinned() -> None:
    world = begun(2)
    order(world, Forbid(node_id="n2", reason="patented"))
    assert refusal(world, Pin(node_id="n2")) == "node 'n2' was forbidden by a person: patented: release it first"
    assert "forbidden already" in refusal(world, Forbid(node_id="n2"))
    order(world, Release(node_id="n2"))
    world.attempt("good", measured(GOOD))
    world.attempt("worse", measured(0.5))
    world.attempt("worst", measured(0.4))
    assert world.state.node("n1").state == "closed"
    assert "is closed" in refusal(world, Pin(node_id="n1"))
    assert "is closed" in refusal(world, Boost(node_id="n1", by=0.1))


def test_instructions_are_numbered_and_what_is_forgotten_keeps_its_number() -> None:
    world = begun()
    order(world, Instruct(text="one\x1b[31m\r\n\ttwo\x00", to="coder"))
    order(world, Instruct(text="three"))
    order(world, Forget(number=1))
    order(world, Instruct(text="four", to="planner"))
    assert [(said.number, said.text, said.to) for said in world.state.instructions] == [
        (2, "three", "both"),
        (3, "four", "planner"),
    ]
    (first, *_) = facts_of(world, InstructionGiven)
    assert first.text == "one[31m\n    two"


def test_only_so_many_instructions_hold_at_once() -> None:
    world = begun()
    for number in range(MAX_INSTRUCTIONS):
        order(world, Instruct(text=f"{number}"))
    assert "have one forgotten first" in refusal(world, Instruct(text="one more"))
    order(world, Forget(number=1))
    order(world, Instruct(text="one more"))


def test_text_without_what_is_none() -> None:
    assert cleaned("a\tb\u200fc\ud800d\x9b31m é 語\n") == "a   bcd31m é 語"


def edits_refused(world: World, *edits: Edit) -> list[str]:
    return [refused.reason for refused in conflicts(world.state, EditScript(edits=edits), limit=9)]


def test_what_a_person_ordered_the_models_edits_cannot_undo() -> None:
    world = begun(4)
    order(world, Pin(node_id="n2"))
    order(world, Boost(node_id="n3", by=0.2))
    order(world, Forbid(node_id="n4", reason="patented"))
    order(world, Inject(candidate=candidate("mine")))
    part = Proposal(title="a", description="", difficulty=1, priority=0.5)
    parts = (part, msgspec.structs.replace(part, title="b"))
    assert edits_refused(world, Prune(node="n2", reason="-")) == ["'n2' was pinned by a person: it stays in the tree"]
    assert edits_refused(world, Split(node="n3", into=parts)) == ["'n3' was boosted by a person: it stays in the tree"]
    assert edits_refused(world, Update(node="n4", priority=0.9)) == ["node 'n4' was forbidden by a person: patented"]
    assert edits_refused(world, Update(node="n5", title="Ours")) == [
        "'n5' is a person's: its title and description stay"
    ]
    below = Insert(parent="n4", title="t", description="", difficulty=1, priority=0.5)
    assert edits_refused(world, below) == ["node 'n4' was forbidden by a person: patented"]


def test_edits_that_agree_with_a_persons_orders_are_taken() -> None:
    world = begun(4)
    order(world, Pin(node_id="n2"))
    order(world, Forbid(node_id="n4"))
    order(world, Inject(candidate=candidate("mine")))
    assert (
        edits_refused(
            world,
            Update(node="n2", priority=0.1, title="Better said"),
            Prune(node="n4", reason="agreed"),
            Update(node="n5", priority=0.3),
        )
        == []
    )


def test_orders_are_taken_while_the_run_rests_and_when_it_is_over() -> None:
    world = begun()
    world.give(PauseRequested(reason=""))
    order(world, Pin(node_id="n3"))
    order(world, Inject(candidate=candidate("mine")))
    assert started_on(world) == ["n1"]
    world.give(StopRequested(reason=""))
    assert world.state.finished
    order(world, Instruct(text="on"))
    order(world, Boost(node_id="n2", by=0.1))
    assert not any(isinstance(fact, PlanRequested | WriteRequested) for fact in world.facts[-2:])
    world.give(RunResumed(run_id=world.state.run_id))
    fail_branch(world)
    assert started_on(world) == ["n1", "n3"]


def test_every_order_has_a_fact_so_that_whoever_gave_it_hears_of_it() -> None:
    world = begun()
    for steering in (
        Pin(node_id="n2"),
        Pin(node_id="n2"),
        Boost(node_id="n2", by=0.0),
        Forbid(node_id="n3"),
        Forbid(node_id="n3"),
        Release(node_id="n3"),
        Release(node_id="n3"),
        Instruct(text="x"),
        Forget(number=1),
        Forget(number=1),
        Inject(candidate=candidate("c")),
    ):
        assert order(world, steering)


def test_a_run_that_is_over_stays_over_whatever_is_ordered() -> None:
    world = search(rounds=1)
    world.propose(inserts(2))
    world.attempt("one", measured(GOOD))
    assert facts_of(world, RunFinished)
    order(world, Inject(candidate=candidate("mine")))
    assert world.state.finished
    assert not world.requests(WriteRequested)


def test_what_hangs_below_an_action_that_is_open_again_waits_for_it_again() -> None:
    world = search(branches=1, tries=1)
    world.propose(inserts(2))
    revise(world, inserts(1, "n1", prefix="below"))
    fail_branch(world)
    assert world.state.node("n1").given_up
    assert "n3" in world.state.frontier_ids
    order(world, Pin(node_id="n1"))
    assert set(world.state.frontier_ids) == {"n1"}
