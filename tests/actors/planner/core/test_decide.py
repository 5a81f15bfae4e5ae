"""What follows from what: one behaviour of the search each."""

from __future__ import annotations

import pytest

from actors.planner.core.state import Branch
from messages.edits import EditScript, Insert, Proposal, Prune, Split, Update
from messages.errors import ProtocolError
from messages.events import JobLost, RunResumed, StopRequested
from messages.facts import (
    AttemptFinished,
    BranchClosed,
    BranchStarted,
    BuildRequested,
    CandidateAwaited,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    IncumbentChanged,
    NodeInserted,
    NodeSpent,
    PlanRequested,
    RunFinished,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from messages.verdicts import DidNotBuild, TimedOut, Wrong
from tests.actors.planner.core.world import (
    World,
    built,
    candidate,
    evaluated,
    inserts,
    measured,
    proposed,
    started,
    written,
)

WRONG = Wrong(reason="1 of 4 elements differ")


def search(
    branches: int = 1, window: int = 2, rounds: int = 100, tries: int = 3, **budget: float | int | None
) -> World:
    limits = Budget(max_rounds=rounds, **budget)  # type: ignore[arg-type]
    return World(SearchSettings(branches=branches, stagnation_window=window, max_tries=tries, budget=limits))


def only_branch(world: World) -> Branch:
    (branch,) = world.state.branches.values()
    return branch


def facts_of(world: World, kind: type) -> list[object]:
    return [fact for fact in world.facts if isinstance(fact, kind)]


def writes(world: World) -> list[WriteRequested]:
    return [fact for fact in world.facts if isinstance(fact, WriteRequested)]


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


def test_branches_that_finish_while_the_planner_thinks_are_told_together() -> None:
    world = search(branches=3, window=1)
    world.propose(inserts(6))
    for text in ("a", "b", "c"):
        world.attempt(text, WRONG)
    first = world.plan()
    assert len(first.branch_ids) == 1
    world.propose(EditScript())
    assert len(world.plan().branch_ids) == 2


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


def test_while_the_planner_thinks_free_slots_draw_extra_samples_of_the_best_node_in_flight() -> None:
    world = search(branches=3)
    world.propose(inserts(1))
    assert world.plan()
    extra = [branch for branch in world.state.branches.values() if branch.extra]
    assert [branch.node_id for branch in extra] == ["n1"]
    assert extra[0].attempt_limit == 1
    assert {branch.sample for branch in world.state.branches.values()} == {0, 1}


def test_an_extra_sample_that_fails_is_no_failure_of_its_node() -> None:
    world = search(branches=2)
    world.propose(inserts(1))
    extra = next(branch for branch in world.state.branches.values() if branch.extra)
    world.attempt("a", WRONG, branch_id=extra.branch_id)
    assert world.state.node("n1").failures == 0
    assert world.state.node("n1").state == "in_flight"


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


def test_rounds_under_way_are_reserved_so_the_budget_is_never_exceeded() -> None:
    world = search(branches=4, rounds=2)
    world.propose(inserts(8))
    assert len(world.requests(WriteRequested)) == 2


def test_the_run_ends_with_its_rounds_and_attaches_what_the_open_branches_had() -> None:
    world = search(rounds=1, window=5)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    assert world.state.finished
    assert world.state.stopped_by == "rounds"
    assert world.state.node("n1").state == "closed"


@pytest.mark.parametrize(
    ("budget", "stopped_by"),
    [({"target_speedup": 1.5}, "target"), ({"max_calls": 2}, "calls"), ({"max_tokens": 100}, "tokens")],
)
def test_each_budget_ends_the_run_and_says_which(budget: dict[str, float], stopped_by: str) -> None:
    world = search(**budget)  # type: ignore[arg-type]
    world.propose(inserts(2))
    if not world.state.finished:
        world.attempt("a", measured(2.0))
    assert world.state.stopped_by == stopped_by


def test_an_empty_frontier_is_first_asked_about_then_varied_then_the_run_is_exhausted() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.attempt("a1", measured(1.0))
    assert world.plan().childless == ("n1",)
    world.propose(EditScript())
    assert world.state.node("n2").origin == "machine"
    assert only_branch(world).node_id == "n2"
    world.attempt("b", measured(1.5))
    world.attempt("b1", measured(1.0))
    for _ in range(4):
        if world.state.finished:
            break
        if world.state.plan:
            world.propose(EditScript())
        else:
            world.attempt(f"c{world.state.rounds}", WRONG)
    while not world.state.finished:
        if world.state.plan:
            world.propose(EditScript())
        else:
            world.attempt(f"d{world.state.rounds}", WRONG)
    assert world.state.stopped_by == "exhausted"


def test_a_childless_node_far_from_the_best_is_spent_when_the_planner_has_nothing_for_it() -> None:
    world = search(window=1)
    world.propose(inserts(3))
    for text, credit in (("a", 4.0), ("a1", 1.0)):
        world.attempt(text, measured(credit))
    world.propose(EditScript())
    for text, credit in (("b", 1.0), ("b1", 0.9)):
        world.attempt(text, measured(credit))
    while world.state.plan:
        world.propose(EditScript())
    spent = {fact.node_id for fact in world.facts if isinstance(fact, NodeSpent)}
    assert "n2" in spent or "n3" in spent
    assert "n1" not in spent


def test_idle_attempts_end_the_run() -> None:
    world = World(SearchSettings(branches=1, stagnation_window=50, max_idle_attempts=3))
    world.propose(inserts(1))
    for _ in range(3):
        world.give(written(world.requests(WriteRequested)[0].job_id, None))
    assert world.state.finished
    assert world.state.stopped_by == "exhausted"


def test_a_stop_lets_evaluations_in_flight_finish_and_leaves_the_rest_for_later() -> None:
    world = search(branches=2)
    world.propose(inserts(2))
    first, second = world.requests(WriteRequested)
    world.give(written(first.job_id, "a"))
    world.give(StopRequested(reason="ctrl-c"))
    assert not world.state.finished
    cid = candidate("a").candidate_id
    build = next(job.request for job in world.state.jobs.values() if "x" in job.request.job_id.split("-")[-1])
    world.give(built(build.job_id, cid))
    assert world.state.finished
    assert world.state.stopped_by == "interrupted"
    (evaluation,) = world.requests(EvaluationRequested)
    assert world.state.jobs[evaluation.job_id].withheld
    world.give(RunResumed(run_id=world.state.run_id))
    assert not world.state.jobs[evaluation.job_id].withheld
    world.give(evaluated(evaluation.job_id, cid, measured(2.0)))
    world.give(written(second.job_id, "b"))
    assert world.state.rounds == 1


def test_a_lost_job_is_asked_for_again_and_too_many_losses_stop_the_run() -> None:
    world = World(SearchSettings(branches=1, max_lost=2))
    world.propose(inserts(1))
    write = world.requests(WriteRequested)[0]
    world.give(JobLost(job_id=write.job_id, kind="write", error="endpoint down"))
    again = world.requests(WriteRequested)[0]
    assert again.job_id != write.job_id
    world.give(JobLost(job_id=again.job_id, kind="write", error="endpoint down"))
    assert world.state.stopped_by == "infrastructure"
    (finished,) = (fact for fact in world.facts if isinstance(fact, RunFinished))
    assert finished.detail == "endpoint down"
    world.give(RunResumed(run_id=world.state.run_id))
    assert len(world.requests(WriteRequested)) == 1


def test_a_lost_evaluation_is_built_again_since_its_artifact_may_be_gone() -> None:
    world = search(branches=1)
    world.propose(inserts(1))
    write = world.requests(WriteRequested)[0]
    world.give(written(write.job_id, "a"))
    cid = candidate("a").candidate_id
    build = world.requests(BuildRequested)[0]
    world.give(built(build.job_id, cid))
    evaluation = world.requests(EvaluationRequested)[0]
    world.give(JobLost(job_id=evaluation.job_id, kind="evaluate", error="the artifact is not in the store"))
    assert not world.requests(EvaluationRequested)
    again = world.requests(BuildRequested)[0]
    assert again.job_id != build.job_id
    world.give(built(again.job_id, cid))
    world.give(evaluated(world.requests(EvaluationRequested)[0].job_id, cid, measured(2.0)))
    assert world.state.rounds == 1


def test_a_run_that_is_ending_asks_no_model_again() -> None:
    world = search(branches=2, target_speedup=1.5)
    world.propose(inserts(4))
    first, second = world.requests(WriteRequested)
    world.give(written(first.job_id, "slow"))
    world.attempt("fast", measured(2.0), branch_id=second.branch_id)  # type: ignore[union-attr]
    assert not world.state.finished, "what was written is still evaluated"
    plan = world.state.plan
    build = next(job.request for job in world.state.jobs.values() if "x" in job.request.job_id.split("-")[-1])
    if plan is not None:
        world.give(JobLost(job_id=plan.job_id, kind="plan", error="down"))
    assert world.state.plan is None
    assert not world.requests(WriteRequested)
    world.give(JobLost(job_id=build.job_id, kind="build", error="no compiler", permanent=True))
    assert world.state.finished
    assert world.state.stopped_by == "target"


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


def test_several_branches_spread_over_the_tree() -> None:
    world = search(branches=2)
    script = EditScript(
        edits=tuple(
            Insert(parent="n0", title=f"t{index}", description="", difficulty=1, priority=0.6 - index / 100)
            for index in range(4)
        )
    )
    world.propose(script)
    assert {branch.node_id for branch in world.state.branches.values()} == {"n1", "n2"}


def test_resuming_with_more_rounds_goes_on_where_the_budget_ended() -> None:
    world = search(rounds=1, window=5)
    world.propose(inserts(2))
    world.attempt("a", measured(2.0))
    assert world.state.finished
    world.give(RunResumed(run_id=world.state.run_id, max_rounds=3))
    assert world.state.running
    assert world.requests(WriteRequested) or world.requests(PlanRequested)


def test_reused_outcomes_are_told_as_attempts_without_a_round() -> None:
    world = search(window=3)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    last = [fact for fact in world.facts if isinstance(fact, AttemptFinished)][-1]
    assert (last.round, last.fate) == (0, "measured")
    assert len([fact for fact in world.facts if isinstance(fact, BranchStarted)]) == 1
    assert not [fact for fact in world.facts if isinstance(fact, BranchClosed)]
