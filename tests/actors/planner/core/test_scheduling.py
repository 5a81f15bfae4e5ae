"""What is begun, and how a run ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from messages.edits import EditScript, Insert
from messages.events import JobLost, RunResumed, StopRequested
from messages.facts import (
    BuildRequested,
    EvaluationRequested,
    NodeSpent,
    PlanRequested,
    QuestionDropped,
    RunFinished,
    RunStopping,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from messages.verdicts import Measured
from tests.actors.planner.core.world import (
    WRONG,
    World,
    built,
    candidate,
    evaluated,
    facts_of,
    inserts,
    measured,
    only_branch,
    search,
    writes,
    written,
)


def test_branches_that_finish_while_the_planner_thinks_are_told_together() -> None:
    world = search(branches=3, window=1)
    world.propose(inserts(6))
    for text in ("a", "b", "c"):
        world.attempt(text, WRONG)
    first = world.plan()
    assert len(first.branch_ids) == 1
    world.propose(EditScript())
    assert len(world.plan().branch_ids) == 2


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


def test_no_more_questions_are_asked_than_may_be_paid_for() -> None:
    settings = SearchSettings(world_model="off", branches=4, confirm=False, budget=Budget(max_rounds=30, max_calls=6))
    world = World(settings)
    number = 0
    while world.requests(WriteRequested):
        assert world.state.usage.calls + len(world.requests(WriteRequested)) <= 6
        world.attempt(f"text {number}", measured(1.0 + number))
        number += 1
    assert (number, world.state.stopped_by, world.state.finished) == (6, "calls", True)


def killed_and_resumed(max_calls: int | None, *, max_rounds: int = 30) -> World:
    """Three answers, then a kill with four questions under way."""
    budget = Budget(max_rounds=30, max_calls=max_calls)
    settings = SearchSettings(world_model="off", branches=4, confirm=False, budget=budget)
    world = World(settings)
    for number in range(3):
        world.attempt(f"text {number}", measured(1.0 + number))
    assert len(world.requests(WriteRequested)) == 4
    world.give(RunResumed(run_id=world.state.run_id, budget=replace(budget, max_rounds=max_rounds)))
    return world


def test_questions_that_a_kill_has_lost_count_as_paid_for() -> None:
    world = killed_and_resumed(10)
    assert world.state.lost_calls == 4
    asked = 3 + 4 + len(world.requests(WriteRequested))
    number = 0
    while world.requests(WriteRequested):
        world.attempt(f"later text {number}", WRONG)
        number += 1
    assert (asked, number, world.state.stopped_by) == (10, 3, "calls")
    assert world.state.finished


def test_of_lost_questions_only_as_many_are_asked_again_as_there_are_rounds_for() -> None:
    world = killed_and_resumed(None, max_rounds=5)
    assert len(world.requests(WriteRequested)) == 2
    for number in range(2):
        world.attempt(f"later text {number}", WRONG)
    assert (world.state.rounds, world.state.stopped_by) == (5, "rounds")
    assert world.state.finished


def test_what_was_written_before_a_stop_is_evaluated_though_it_exceeds_the_rounds() -> None:
    budget = Budget(max_rounds=30)
    world = World(SearchSettings(world_model="off", branches=4, confirm=False, budget=budget))
    texts = [f"text {number}" for number in range(4)]
    for write, text in zip(world.requests(WriteRequested), texts, strict=True):
        world.give(written(write.job_id, text))
    world.give(RunResumed(run_id=world.state.run_id, budget=replace(budget, max_rounds=2)))
    assert world.requests(WriteRequested) == []
    for text, build in zip(texts, world.requests(BuildRequested), strict=True):
        world.give(built(build.job_id, candidate(text).candidate_id))
        world.evaluate(text, WRONG)
    assert (world.state.rounds, world.state.finished) == (4, True)


def test_without_a_budget_of_calls_every_lost_question_is_asked_again_under_its_id() -> None:
    world = killed_and_resumed(None)
    assert not facts_of(world, QuestionDropped)
    assert len(world.requests(WriteRequested)) == 4
    assert len(writes(world)) == 7


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


def test_a_run_whose_planner_is_not_understood_varies_what_it_has_until_its_budget_is_used() -> None:
    world = search(window=1, rounds=12)
    for number in range(200):
        if world.state.finished:
            break
        if world.state.plan:
            world.propose(None)
        else:
            world.attempt(f"v{number}", measured(2.0 + number) if number % 2 else WRONG)
    assert world.state.stopped_by == "rounds"
    titles = [node.title for node in world.state.nodes.values() if node.parent_id]
    assert len(titles) == len(set(titles)) > 1


def test_a_planner_that_is_understood_again_and_has_nothing_left_ends_the_run() -> None:
    world = search(window=1, rounds=40)
    for number in range(200):
        if world.state.finished:
            break
        if world.state.plan:
            world.propose(EditScript() if world.state.rounds >= 12 else None)
        else:
            world.attempt(f"v{number}", WRONG)
    assert world.state.stopped_by == "exhausted"
    assert 12 <= world.state.rounds < 40


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
    (why,) = [fact.detail for fact in world.facts if isinstance(fact, RunStopping)]
    assert why == "3 attempts in a row brought nothing to evaluate"


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
    world.attempt("fast", measured(2.0), branch_id=second.branch_id)
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


def test_a_branch_ends_with_its_first_correct_candidate_where_nothing_is_timed() -> None:
    world = search(window=5)
    world.propose(inserts(2))
    world.attempt("a", WRONG)
    assert only_branch(world).node_id == "n1"
    world.attempt("b", Measured(timed=False))
    assert world.state.node("n1").state == "closed"
    assert only_branch(world).node_id == "n2"
    assert world.state.incumbent is None


def test_resuming_with_more_rounds_goes_on_where_the_budget_ended() -> None:
    world = search(rounds=1, window=5)
    world.propose(inserts(2))
    world.attempt("a", measured(2.0))
    assert world.state.finished
    world.give(RunResumed(run_id=world.state.run_id, budget=Budget(max_rounds=3)))
    assert world.state.running
    assert world.requests(WriteRequested) != [] or world.requests(PlanRequested) != []


def test_a_family_that_cannot_be_carried_out_does_not_bury_its_actions() -> None:
    world = search(window=1, tries=1)
    family = Insert(parent="n0", title="Tensor cores", description="", difficulty=1, priority=0.9, key="family")
    action = Insert(parent="family", title="mma on 16 rows", description="d", difficulty=3, priority=0.5)
    deeper = Insert(parent="n2", title="two stages", description="d", difficulty=3, priority=0.5)
    world.propose(EditScript(edits=(family, action)))
    world.attempt("a", WRONG)
    assert world.state.node("n1").given_up
    assert only_branch(world).node_id == "n2"
    assert only_branch(world).base is None, "it builds on what is above its family"
    world.propose(EditScript(edits=(deeper,)))
    world.attempt("b", WRONG)
    assert only_branch(world).node_id == "n3", "nor does one that failed below it"
