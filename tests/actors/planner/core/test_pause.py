"""A paused run: what is in flight is taken in, nothing new begins, and limits and people still end it."""

from __future__ import annotations

import pytest

from messages.edits import EditScript, Insert
from messages.events import ClockTicked, ContinueRequested, JobLost, PauseRequested, RunResumed, StopRequested
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    EditsApplied,
    EvaluationRequested,
    PlanRequested,
    RunContinued,
    RunPaused,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from tests.actors.planner.core.world import (
    World,
    built,
    candidate,
    evaluated,
    facts_of,
    inserts,
    measured,
    search,
    writes,
    written,
)

PAUSE, CONTINUE = PauseRequested(reason="test"), ContinueRequested()
NO_SCRIPT = EditScript(edits=(Insert(parent="n99", title="t", description="", difficulty=1, priority=0.5),))


def begun(branches: int = 2, **budget: float | int | None) -> World:
    world = search(branches=branches, **budget)  # type: ignore[arg-type]
    world.propose(inserts(2 * branches))
    return world


def test_an_attempt_in_flight_is_taken_in_to_its_verdict_and_nothing_follows_it() -> None:
    world = begun(branches=1)
    (write,) = writes(world)
    world.give(PAUSE)
    world.give(written(write.job_id, "one"))
    (build,) = world.state.jobs.values()
    candidate_id = candidate("one").candidate_id
    world.give(built(build.request.job_id, candidate_id))
    (evaluation,) = world.requests(EvaluationRequested)
    world.give(evaluated(evaluation.job_id, candidate_id, measured(1.5)))
    assert world.state.rounds == 1
    assert world.state.incumbent is not None
    assert not world.state.jobs
    assert len(writes(world)) == 1
    world.give(CONTINUE)
    assert len(writes(world)) == 2


def test_actions_that_come_while_it_rests_are_put_into_the_tree_and_not_begun() -> None:
    world = search(branches=2)
    world.give(PAUSE)
    world.propose(inserts(3))
    assert facts_of(world, EditsApplied)
    assert not facts_of(world, BranchStarted)
    world.give(CONTINUE)
    assert len(facts_of(world, BranchStarted)) == 2


def test_a_refused_script_is_asked_for_again_when_the_run_goes_on() -> None:
    world = search(branches=1)
    world.give(PAUSE)
    world.propose(NO_SCRIPT)
    assert world.state.questions == []
    world.give(CONTINUE)
    (again,) = world.state.questions
    assert isinstance(again, PlanRequested)
    assert again.tries == 1


def test_a_lost_question_is_asked_again_when_the_run_goes_on() -> None:
    world = begun(branches=1)
    (write,) = writes(world)
    world.give(PAUSE)
    world.give(JobLost(job_id=write.job_id, kind="write", error="gone"))
    assert world.state.questions == []
    world.give(CONTINUE)
    assert [type(question) for question in world.state.questions] == [WriteRequested]


def test_a_stop_ends_it_and_what_was_withheld_waits_for_the_resume() -> None:
    world = search(branches=1)
    world.give(PAUSE)
    world.propose(NO_SCRIPT)
    world.give(StopRequested(reason="test"))
    assert world.state.finished
    assert world.state.stopped_by == "interrupted"
    world.give(CONTINUE)
    assert world.state.questions == []
    world.give(RunResumed(run_id=world.state.run_id))
    assert not world.state.paused
    assert len(world.state.questions) == 1


@pytest.mark.parametrize("budget", [Budget(max_rounds=100, wall_clock_s=10.0), Budget(max_rounds=1)])
def test_a_budget_that_is_used_up_ends_it(budget: Budget) -> None:
    world = World(SearchSettings(branches=1, budget=budget))
    world.propose(inserts(2))
    (write,) = writes(world)
    world.give(PAUSE)
    world.give(written(write.job_id, "one"))
    world.give(built(next(iter(world.state.jobs)), candidate("one").candidate_id, ok=False))
    world.give(ClockTicked(elapsed_s=11.0))
    assert world.state.finished
    assert world.state.stopped_by in ("wall_clock", "rounds")


def test_a_pause_is_told_once_and_so_is_its_end() -> None:
    world = begun()
    assert [type(fact) for fact in world.give(PAUSE)] == [RunPaused]
    assert world.give(PAUSE) == ()
    assert type(world.give(CONTINUE)[0]) is RunContinued
    assert world.give(CONTINUE) == ()


def test_a_run_that_is_over_is_neither_paused_nor_continued() -> None:
    world = begun(branches=1)
    world.give(StopRequested(reason="test"))
    assert world.state.finished
    assert world.give(PAUSE) == world.give(CONTINUE) == ()
    assert facts_of(world, AttemptFinished) == []
