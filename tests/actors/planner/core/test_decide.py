"""What follows from what: one behaviour of a branch and its attempts each."""

from __future__ import annotations

import pytest

from messages.base import ProtocolError
from messages.edits import EditScript, Insert
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    CandidateAwaited,
    EvaluationRequested,
    IncumbentChanged,
    WriteRequested,
)
from messages.settings import SearchSettings
from messages.verdicts import DidNotBuild, TimedOut
from tests.actors.planner.core.world import (
    WRONG,
    built,
    candidate,
    evaluated,
    facts_of,
    inserts,
    measured,
    only_branch,
    proposed,
    search,
    started,
    writes,
    written,
)


def test_a_new_search_asks_for_an_analysis_and_for_actions() -> None:
    world = search(branches=2)
    assert world.plan().purpose == "analyse"
    assert world.plan().wanted == 4


def test_the_most_promising_action_is_tried_first_and_the_simpler_one_on_a_tie() -> None:
    world = search()
    edits = (
        Insert(parent="n0", title="hard", description="", difficulty=4, priority=0.9),
        Insert(parent="n0", title="easy", description="", difficulty=2, priority=0.9),
        Insert(parent="n0", title="dull", description="", difficulty=1, priority=0.3),
    )
    world.propose(EditScript(edits=edits))
    assert only_branch(world).node_id == "n2"


def test_an_attempt_is_written_then_built_then_evaluated() -> None:
    world = search()
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    kinds = [type(fact).__name__ for fact in world.facts]
    order = ["WriteRequested", "BuildRequested", "EvaluationRequested", "AttemptFinished", "IncumbentChanged"]
    assert [kind for kind in kinds if kind in order][:5] == order
    assert world.state.rounds == 1


def test_a_candidate_that_does_not_build_is_a_round_and_never_reaches_an_evaluator() -> None:
    world = search()
    world.propose(inserts(1))
    world.attempt("a", DidNotBuild(reason="expected ';'"))
    assert world.state.rounds == 1
    assert not facts_of(world, EvaluationRequested)


def test_after_a_failure_the_coder_debugs_and_after_a_pass_it_improves_on_the_best() -> None:
    world = search(window=5)
    world.propose(inserts(1))
    world.attempt("wrong", WRONG)
    world.attempt("good", measured(2.0))
    world.attempt("slower", measured(1.2))
    modes = [(write.mode, write.base_id, write.current_id) for write in writes(world)]
    good, slower = candidate("good").candidate_id, candidate("slower").candidate_id
    assert modes == [
        ("apply", None, None),
        ("debug", None, candidate("wrong").candidate_id),
        ("improve", good, None),
        ("improve", good, slower),
    ]


def test_a_branch_ends_after_the_stagnation_window_and_its_best_closes_the_node() -> None:
    world = search(window=2)
    world.propose(inserts(1))
    for text, credit in (("a", 2.0), ("b", 1.9), ("c", 2.01)):
        world.attempt(text, measured(credit))
    node = world.state.node("n1")
    assert node.state == "closed"
    assert node.best is not None
    assert node.best.candidate_id == candidate("c").candidate_id
    assert not world.state.branches


def test_a_branch_ends_when_its_coder_with_a_candidate_in_hand_sees_nothing_further() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(written(world.requests(WriteRequested)[0].job_id, None, declined="all was tried"))
    assert world.state.node("n1").state == "closed"
    assert not world.state.branches
    assert world.state.node("n1").fates == (("measured", 1), ("declined", 1))


def test_an_improvement_within_the_interval_does_not_restart_the_stagnation_window() -> None:
    world = search(window=3)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0, width=0.2))
    world.attempt("b", measured(2.05, width=0.2))
    assert only_branch(world).stale == 1
    world.attempt("c", measured(2.5, width=0.2))
    assert only_branch(world).stale == 0


def test_a_slower_candidate_is_attached_and_its_children_start_from_it() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("fast", measured(3.0))
    world.attempt("fast2", measured(2.9))
    world.propose(inserts(1, parent="n1", prefix="child"))
    world.attempt("slow", measured(0.8))
    world.attempt("slow2", measured(0.7))
    node = world.state.node("n2")
    assert node.state == "closed"
    assert node.best is not None
    assert node.best.credit == 0.8
    world.propose(inserts(1, parent="n2", prefix="grandchild", priority=1.0))
    assert only_branch(world).base == node.best
    assert world.state.incumbent is not None
    assert world.state.incumbent.credit == 3.0


def test_a_node_that_failed_is_not_chosen_again_as_if_nothing_had_happened() -> None:
    world = search(window=1)
    edits = (
        Insert(parent="n0", title="good", description="", difficulty=1, priority=0.9),
        Insert(parent="n0", title="next", description="", difficulty=1, priority=0.6),
    )
    world.propose(EditScript(edits=edits))
    world.attempt("a", WRONG)
    assert only_branch(world).node_id == "n2"
    assert world.state.node("n1").state == "open"


def test_a_node_is_given_up_after_as_many_failed_branches_as_allowed() -> None:
    world = search(window=1, tries=2)
    world.propose(inserts(1))
    world.attempt("a", WRONG)
    world.propose(EditScript())
    world.attempt("b", WRONG)
    assert world.state.node("n1").state == "pruned"
    assert world.state.node("n1").given_up


def test_a_known_candidate_is_not_evaluated_again_and_costs_no_round() -> None:
    world = search(window=4)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    assert world.state.rounds == 1
    assert only_branch(world).attempts[-1].credit == 2.0
    assert only_branch(world).stale == 1


def test_a_candidate_that_timed_out_may_try_once_more() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    timed_out = TimedOut(reason="killed", stage="call", limit_s=5)
    world.attempt("a", timed_out)
    world.attempt("a", timed_out)
    assert world.state.rounds == 2
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    assert world.state.rounds == 2


def test_two_branches_that_write_the_same_share_one_evaluation() -> None:
    world = search(branches=2)
    world.propose(inserts(2))
    first, second = world.requests(WriteRequested)
    world.give(written(first.job_id, "same"))
    world.give(written(second.job_id, "same"))
    assert len(facts_of(world, CandidateAwaited)) == 1
    cid = candidate("same").candidate_id
    (build,) = (job.request.job_id for job in world.state.jobs.values() if job.request.job_id.split("-")[-1][0] == "x")
    world.give(built(build, cid))
    (evaluation,) = world.requests(EvaluationRequested)
    world.give(evaluated(evaluation.job_id, cid, measured(2.0)))
    assert [len(branch.attempts) for branch in world.state.branches.values()] == [1, 1]
    assert world.state.rounds == 1
    assert len(facts_of(world, IncumbentChanged)) == 1


def test_an_answer_to_a_question_that_was_never_asked_is_an_error_and_changes_nothing() -> None:
    world = search()
    before = world.state
    with pytest.raises(ProtocolError, match="never asked"):
        world.give(written("test-run-w99", "a"))
    with pytest.raises(ProtocolError, match="started twice"):
        world.give(started(SearchSettings()))
    assert world.state == before


def test_a_late_answer_to_a_question_that_was_asked_again_changes_nothing() -> None:
    world = search()
    first = world.plan()
    world.propose(None)
    assert world.give(proposed(first.job_id, inserts(3))) == ()


def test_reused_outcomes_are_told_as_attempts_without_a_round() -> None:
    world = search(window=3)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    last = [fact for fact in world.facts if isinstance(fact, AttemptFinished)][-1]
    assert (last.round, last.fate) == (0, "measured")
    assert len([fact for fact in world.facts if isinstance(fact, BranchStarted)]) == 1
    assert not [fact for fact in world.facts if isinstance(fact, BranchClosed)]
