"""Tasks whose candidates have scores instead of speedups: any sign, any scale, larger is better."""

from __future__ import annotations

import math

import pytest

from actors.planner.core.selection import score
from messages.base import ROOT
from messages.events import JobLost, RunResumed
from messages.facts import (
    AttemptFinished,
    IncumbentChanged,
    InitialRequested,
    InitialScored,
    RunFinished,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from messages.verdicts import Crashed, Scored
from tests.actors.planner.core.world import WRONG, World, candidate, evaluated, facts_of, inserts

INITIAL = candidate("initial")


def scored(value: float) -> Scored:
    return Scored(score=value, metrics={"combined_score": value})


def searching(*, branches: int = 1, rounds: int = 30, window: int = 3, target: float | None = None) -> World:
    budget = Budget(max_rounds=rounds, target_speedup=target)
    settings = SearchSettings(
        world_model="off", branches=branches, stagnation_window=window, repair_window=window, budget=budget
    )
    return World(settings, initial=INITIAL)


def score_initial(world: World, value: float) -> None:
    (request,) = world.requests(InitialRequested)
    world.give(evaluated(request.job_id, INITIAL.candidate_id, scored(value)))


def test_the_initial_program_is_scored_beside_the_first_attempts_and_is_no_round() -> None:
    world = searching(branches=2)
    assert len(world.requests(InitialRequested)) == 1
    assert len(world.requests(WriteRequested)) == 2
    score_initial(world, 0.4)
    assert world.state.rounds == 0
    assert world.state.incumbent is None
    best = world.state.node(ROOT).best
    assert best is not None
    assert (best.candidate_id, best.credit) == (INITIAL.candidate_id, 0.4)
    assert len(facts_of(world, InitialRequested)) == 1


def test_later_branches_start_from_the_initial_program() -> None:
    world = searching(window=1)
    score_initial(world, 0.4)
    world.attempt("a", WRONG)
    (write,) = world.requests(WriteRequested)
    assert isinstance(write, WriteRequested)
    assert write.base_id == INITIAL.candidate_id


def test_who_writes_the_initial_program_again_gets_its_score_without_an_evaluation() -> None:
    world = searching()
    score_initial(world, 0.4)
    (write,) = world.requests(WriteRequested)
    from tests.actors.planner.core.world import written  # noqa: PLC0415 - named here only

    world.give(written(write.job_id, "initial"))
    (attempt,) = facts_of(world, AttemptFinished)
    assert isinstance(attempt, AttemptFinished)
    assert (attempt.round, attempt.credit) == (0, 0.4)


@pytest.mark.parametrize("scores", [(-9.0, -2.0, -5.0), (1e9, 3e9, 2e9), (0.0, 0.5, 0.25)])
def test_the_larger_score_is_the_better_whatever_its_sign_and_scale(scores: tuple[float, float, float]) -> None:
    world = searching()
    score_initial(world, scores[0])
    for number, value in enumerate(scores):
        world.attempt(f"text {number}", scored(value))
    assert world.state.incumbent is not None
    assert world.state.incumbent.credit == scores[1]
    assert [fact.credit for fact in facts_of(world, IncumbentChanged) if isinstance(fact, IncumbentChanged)] == [
        scores[0],
        scores[1],
    ]
    improved = [fact.improved for fact in facts_of(world, AttemptFinished) if isinstance(fact, AttemptFinished)]
    assert improved == [True, True, False]
    assert (world.state.incumbent.speedup, world.state.incumbent.latency_us) == (None, None)


def test_a_branch_without_a_better_score_is_stagnant() -> None:
    world = searching(window=2)
    score_initial(world, 0.4)
    for number, value in enumerate((-1.0, -1.5, -1.25)):
        world.attempt(f"text {number}", scored(value))
    assert world.state.node("n1").state == "closed"


def test_the_target_is_a_score() -> None:
    world = searching(target=0.9)
    score_initial(world, 0.4)
    world.attempt("a", scored(0.8))
    assert world.state.running
    world.attempt("b", scored(0.95))
    assert world.state.stopped_by == "target"


def test_selection_stays_finite_and_prefers_children_of_better_scores() -> None:
    settings = SearchSettings(branches=2, stagnation_window=1, budget=Budget(max_rounds=30))
    world = World(settings, initial=INITIAL)
    score_initial(world, -10.0)
    world.propose(inserts(2))
    for text, value in (("a", -8.0), ("b", -2.0), ("c", -9.0), ("d", -9.5)):
        world.attempt(text, scored(value))
    for parent in ("n1", "n2"):
        world.propose(inserts(1, parent=parent)) if world.state.plan else None
    terms = {
        node.parent_id: part for node, part in score(world.state, [world.state.node("n1"), world.state.node("n2")])
    }
    assert all(math.isfinite(part.total) for part in terms.values())
    assert all(-1.0 <= part.evidence <= 0.0 for part in terms.values())


def test_an_initial_program_without_a_score_stops_the_run_and_is_asked_for_again_on_resuming() -> None:
    world = searching()
    (request,) = world.requests(InitialRequested)
    world.give(evaluated(request.job_id, INITIAL.candidate_id, Crashed(reason="it raised KeyError: 'x'")))
    assert world.state.stopped_by == "infrastructure"
    assert "KeyError" in world.state.stop_detail
    (end,) = facts_of(world, RunFinished)
    assert isinstance(end, RunFinished)
    world.give(RunResumed(run_id=world.state.run_id))
    assert len(world.requests(InitialRequested)) == 1


def test_a_lost_scoring_of_the_initial_program_is_asked_for_again() -> None:
    world = searching()
    (request,) = world.requests(InitialRequested)
    world.give(JobLost(job_id=request.job_id, kind="evaluate", error="the host died"))
    (again,) = world.requests(InitialRequested)
    assert again.job_id != request.job_id
    score_initial(world, 0.4)
    assert len(facts_of(world, InitialScored)) == 1


def test_a_run_that_is_ending_waits_for_the_score_of_the_initial_program() -> None:
    world = searching(rounds=1)
    world.attempt("a", scored(0.8))
    assert not world.state.finished
    score_initial(world, 0.4)
    assert world.state.finished
