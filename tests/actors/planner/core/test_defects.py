"""What went wrong in the original's search and would here: see docs/design/0006-defects-of-the-original.md."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.planner.core.selection import select
from actors.planner.core.state import in_order
from messages.base import ROOT
from messages.codec import CodecError, decode_script
from messages.edits import EditScript, Insert, Proposal, Refusal, Split, Update
from messages.facts import BranchStarted, EditsApplied, PlanAbandoned, PlanRequested
from messages.settings import SearchSettings
from messages.verdicts import Crashed, DidNotBuild, TimedOut, Verdict
from tests.actors.planner.core.world import (
    WRONG,
    World,
    facts_of,
    inserts,
    measured,
    only_branch,
    proposed,
    search,
    started,
)

USELESS = EditScript()


def insert(title: str, parent: str = ROOT, **changes: object) -> Insert:
    told = {"parent": parent, "title": title, "description": "", "difficulty": 2, "priority": 0.5, **changes}
    return Insert(**told)  # type: ignore[arg-type]


def test_with_a_planner_that_says_nothing_useful_no_node_is_chosen_again_and_again_after_failing() -> None:
    """6: twelve of twelve rounds went to the same node, whose score nobody lowered."""
    world = search(window=1, rounds=12, tries=2)
    world.propose(EditScript(edits=(insert("best", priority=0.9), insert("second", priority=0.8), insert("third"))))
    number = 0
    while world.state.running:
        if world.state.plan is not None:
            world.propose(USELESS)
        if world.state.branches:
            number += 1
            world.attempt(f"attempt {number}", WRONG)
    chosen = [fact.node_id for fact in facts_of(world, BranchStarted) if isinstance(fact, BranchStarted)]
    assert len(set(chosen)) >= 3
    assert max(chosen.count(node_id) for node_id in chosen) <= 2
    assert world.state.node("n1").given_up


def test_three_refused_scripts_leave_nothing_behind_and_no_id_is_given_twice() -> None:
    """7: three rejected scripts left nine duplicate nodes, several with one id."""
    world = search()
    script = EditScript(edits=(insert("fine"), insert("lost", parent="n99")))
    for _ in range(2):
        world.propose(script)
        assert len(world.state.nodes) == 1
    world.propose(script)
    assert [node.title for node in in_order(world.state.nodes)] == ["reference", "fine"]
    assert len({node.node_id for node in in_order(world.state.nodes)}) == 2


def test_all_reasons_of_a_refusal_are_asked_about_again_however_many_they_are() -> None:
    """8: the list of errors was cut at 500 characters, behind an action that filled them."""
    world = search()
    world.propose(EditScript(edits=tuple(Update(node=f"n{90 + index}", priority=0.5) for index in range(8))))
    refusals = world.plan().refusals
    assert [refusal.index for refusal in refusals] == list(range(8))
    assert all(f"n{90 + refusal.index}" in refusal.reason for refusal in refusals)


def test_edits_that_cannot_be_read_are_asked_about_and_after_the_last_refusal_the_others_are_applied() -> None:
    """27.6: one edit in another form refused the whole script, and in the end all of its edits."""
    world = search()
    unread = (Refusal(index=1, reason="machine's"),)
    script = EditScript(edits=(insert("fine"), insert("lost", parent="n99"), insert("too")))
    for _ in range(2):
        world.give(msgspec.structs.replace(proposed(world.plan().job_id, script), unread=unread))
        assert [refusal.index for refusal in world.plan().refusals] == [1, 2]
        assert len(world.state.nodes) == 1
    world.give(msgspec.structs.replace(proposed(world.plan().job_id, script), unread=unread))
    assert [node.title for node in in_order(world.state.nodes)] == ["reference", "fine", "too"]
    (applied,) = facts_of(world, EditsApplied)
    assert isinstance(applied, EditsApplied)
    assert [(refusal.index, refusal.reason[:9]) for refusal in applied.refusals] == [(1, "machine's"), (2, "parent 'n")]


def test_rules_hold_after_the_last_refusal_too() -> None:
    """9: checks were advisory from the third attempt on."""
    world = search()
    script = EditScript(edits=(insert("same"), insert("same"), Update(node=ROOT, priority=1.0)))
    for _ in range(3):
        world.propose(script)
    titles = [node.title for node in in_order(world.state.nodes)]
    assert titles.count("same") <= 1
    assert world.state.node(ROOT).priority == 0.0
    (applied,) = facts_of(world, EditsApplied)
    assert isinstance(applied, EditsApplied)
    assert applied.refusals


@pytest.mark.parametrize(
    "field", ['"state": "closed"', '"best": {"speedup": 9}', '"candidate_id": "c1"', '"node_id": "n7"', '"rounds": 0']
)
@pytest.mark.parametrize(
    "edit",
    [
        '"op": "update", "node": "n1", "priority": 0.5',
        '"op": "insert", "parent": "n0", "title": "t", "description": "d", "difficulty": 1, "priority": 0.5',
    ],
)
def test_what_the_machine_owns_has_no_field_that_a_model_could_write(edit: str, field: str) -> None:
    """10: a made-up result turned an open node into the best one."""
    assert decode_script(f'{{"edits": [{{{edit}}}]}}').edits
    with pytest.raises(CodecError, match="unknown field"):
        decode_script(f'{{"edits": [{{{edit}, {field}}}]}}')


def test_a_family_at_depth_one_is_an_action_itself_and_never_a_dead_end() -> None:
    """13: a family without an action made its subtree unreachable; with nothing else the run stopped in round 1."""
    with pytest.raises(CodecError):
        decode_script(
            '{"edits": [{"op":"insert","parent":"n0","title":"","description":"","difficulty":1,"priority":1}]}'
        )
    world = search(window=1)
    world.propose(EditScript(edits=(insert("family", key="f"), insert("tactic", parent="f"))))
    assert only_branch(world).node_id == "n1"
    world.attempt("carried out", measured(1.5))
    world.attempt("no better", WRONG)
    world.propose(USELESS)
    assert only_branch(world).node_id == "n2"


@pytest.mark.parametrize("cap", [2, 3, 5])
def test_the_cap_of_difficulty_stays_as_it_was_set_whatever_was_reached(cap: int) -> None:
    """14: it became 4 once a result was good, from 5 as from 2."""
    world = World(SearchSettings(branches=1, stagnation_window=1, max_difficulty=cap, confirm=False))
    levels = tuple(insert(f"level {level}", difficulty=level, priority=0.5 + level / 20) for level in range(1, 6))
    world.propose(EditScript(edits=levels))
    world.attempt("very good", measured(50.0))
    world.attempt("no better", WRONG)
    world.propose(USELESS)
    chosen = world.state.node(only_branch(world).node_id)
    assert chosen.difficulty <= cap
    assert max(node.difficulty for node in in_order(world.state.nodes) if node.tries or node.in_flight) <= cap


def test_what_a_node_failed_with_changes_what_is_chosen_without_the_models_help() -> None:
    """14: evidence counted only through what the model wrote down of it."""
    world = search(window=1)
    world.propose(EditScript(edits=(insert("first", priority=0.6), insert("second", priority=0.5))))
    assert only_branch(world).node_id == "n1"
    world.attempt("no", WRONG)
    world.propose(USELESS)
    assert only_branch(world).node_id == "n2"


@pytest.mark.parametrize(
    "verdict",
    [WRONG, DidNotBuild(reason="no ';'"), Crashed(reason="signal 11"), TimedOut(reason="hung", stage="s", limit_s=1.0)],
)
def test_each_way_to_fail_is_counted_for_itself(verdict: Verdict) -> None:
    """17: nothing told what did not build from what was slow."""
    world = search(window=2)
    world.propose(inserts(2))
    world.attempt("a", verdict)
    assert dict(world.state.node("n1").fates) == {str(verdict.__struct_config__.tag): 1}
    world.attempt("b", verdict)
    (report,) = world.state.reports
    assert {attempt.fate for attempt in report.attempts} == {str(verdict.__struct_config__.tag)}


def test_a_correct_candidate_that_is_not_its_branchs_best_is_kept_and_shown() -> None:
    """18: passes that were not a cycle's best were dropped."""
    world = search(window=2)
    world.propose(inserts(2))
    for number, credit in enumerate((3.0, 2.0, 2.5)):
        world.attempt(f"pass {number}", measured(credit))
    assert len(world.state.known) == 3
    (report,) = world.state.reports
    assert [attempt.credit for attempt in report.attempts] == [3.0, 2.0, 2.5]


def test_a_root_of_another_name_is_a_node_that_does_not_exist() -> None:
    """20: a planner that named its root otherwise lost the frontier."""
    world = search()
    world.propose(EditScript(edits=(insert("under a root of its own", parent="root"),)))
    assert "root" in world.plan().refusals[0].reason
    assert set(world.state.nodes) == {ROOT}


@given(
    parents=st.lists(st.sampled_from(["n0", "a", "b", "c", "n1", "n9"]), min_size=1, max_size=6),
    keys=st.lists(st.sampled_from(["", "a", "b", "c", "n1"]), min_size=6, max_size=6),
)
@settings(deadline=None, max_examples=150)
def test_whatever_parents_a_script_names_the_tree_stays_one(parents: list[str], keys: list[str]) -> None:
    """20: cyclic parents made the frontier's renderer recurse without end."""
    world = search()
    edits = tuple(
        insert(f"t{index}", parent=parent, key=key)
        for index, (parent, key) in enumerate(zip(parents, keys, strict=False))
    )
    script = EditScript(edits=edits)
    for _ in range(3):
        if world.state.plan is not None:
            world.propose(script)
    for node in in_order(world.state.nodes):
        above = node
        for _ in range(len(world.state.nodes)):
            if not above.parent_id:
                break
            above = world.state.node(above.parent_id)
        assert above.node_id == ROOT


def test_a_split_gives_new_ids_and_its_parts_hang_where_the_whole_did() -> None:
    """7: split children could share ids."""
    world = search(branches=1)
    world.propose(inserts(3))
    world.attempt("first", WRONG)
    world.attempt("second", WRONG)
    part = [Proposal(title=f"part {n}", description="", difficulty=1, priority=0.5) for n in range(3)]
    world.propose(EditScript(edits=(Split(node="n3", into=tuple(part)),)))
    nodes = in_order(world.state.nodes)
    assert len({node.node_id for node in nodes}) == len(nodes) == 7
    assert {node.parent_id for node in nodes if node.title.startswith("part")} == {ROOT}


def test_a_useless_planner_is_given_up_for_that_call_and_the_machine_goes_on() -> None:
    """21: an answer that could not be parsed was asked for again with the very same words, or ended the run."""
    world = search()
    for number in range(3):
        assert world.plan().tries == number
        world.propose(None)
    asked = [fact for fact in facts_of(world, PlanRequested) if isinstance(fact, PlanRequested)]
    assert [bool(request.refusals) for request in asked[:3]] == [False, True, True]
    assert facts_of(world, PlanAbandoned)
    assert world.state.running
    assert world.state.branches


def test_a_run_of_the_same_seed_and_answers_is_the_same_run() -> None:
    """24: workloads were drawn without a seed, so that scores before and after a resume could not be compared."""
    assert msgspec.json.encode(started(SearchSettings())) == msgspec.json.encode(started(SearchSettings()))
    first, second = (search(branches=3) for _ in range(2))
    for world in (first, second):
        world.propose(inserts(6))
    assert first.facts == second.facts
    assert select(first.state) == select(second.state)
