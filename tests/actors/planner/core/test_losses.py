"""What the infrastructure lost: asked for again once, then given up, and losses in a row stop the run."""

from __future__ import annotations

from messages.events import JobLost
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationRequested,
    EditsRefused,
    EvaluationRequested,
    PlanAbandoned,
    PlanRequested,
    WriteRequested,
)
from messages.settings import SearchSettings
from tests.actors.planner.core.world import World, built, candidate, evaluated, inserts, measured, only_branch, written


def lose(world: World, kind: type[WriteRequested | BuildRequested | EvaluationRequested | PlanRequested]) -> None:
    """Lose the first open job of a kind."""
    world.give(JobLost(job_id=world.requests(kind)[0].job_id, kind="write", error="gone"))


def lost_attempts(world: World) -> list[AttemptFinished]:
    return [fact for fact in world.facts if isinstance(fact, AttemptFinished) and fact.fate == "lost"]


def test_a_question_that_is_lost_twice_is_given_up_and_the_branch_asks_another() -> None:
    world = World(SearchSettings(branches=1))
    world.propose(inserts(1))
    question = world.requests(WriteRequested)[0]
    lose(world, WriteRequested)
    assert not lost_attempts(world)
    lose(world, WriteRequested)
    (attempt,) = lost_attempts(world)
    assert (attempt.candidate_id, attempt.outcome, attempt.round) == (None, "lost: no answer", 0)
    (another,) = world.requests(WriteRequested)
    assert (another.branch_id, another.lost) == (question.branch_id, 0)
    assert only_branch(world).attempts[0].fate == "lost"


def test_a_candidate_that_is_lost_twice_is_given_up_and_says_nothing_of_its_program() -> None:
    world = World(SearchSettings(branches=1))
    world.propose(inserts(1))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    cid = candidate("a").candidate_id
    world.give(built(world.requests(BuildRequested)[0].job_id, cid))
    lose(world, EvaluationRequested)
    world.give(built(world.requests(BuildRequested)[0].job_id, cid))
    lose(world, EvaluationRequested)
    (attempt,) = lost_attempts(world)
    assert (attempt.candidate_id, attempt.outcome) == (cid, "lost: no verdict")
    assert cid not in world.state.known
    assert world.state.rounds == 0
    assert not world.state.finished
    assert world.requests(WriteRequested)


def test_drafts_that_await_a_candidate_are_given_up_with_it() -> None:
    world = World(SearchSettings(branches=1, samples=2))
    world.propose(inserts(1))
    for write in world.requests(WriteRequested):
        world.give(written(write.job_id, "same"))
    lose(world, BuildRequested)
    lose(world, BuildRequested)
    assert sorted(attempt.draft for attempt in lost_attempts(world)) == [0, 1]
    assert len(only_branch(world).attempts) == 1


def test_a_planners_question_that_is_lost_twice_is_put_another_way_and_at_last_given_up() -> None:
    world = World(SearchSettings(branches=1, refusals=1, max_lost=50))
    lose(world, PlanRequested)
    lose(world, PlanRequested)
    (asked,) = world.requests(PlanRequested)
    assert [refusal.reason for refusal in asked.refusals] == ["no answer arrived: a shorter one may"]
    assert sum(isinstance(fact, EditsRefused) for fact in world.facts) == 1
    lose(world, PlanRequested)
    assert not any(isinstance(fact, PlanAbandoned) for fact in world.facts)
    lose(world, PlanRequested)
    assert any(isinstance(fact, PlanAbandoned) for fact in world.facts)


def test_an_endpoint_that_is_down_stops_the_run_all_the_same() -> None:
    world = World(SearchSettings(branches=1, max_lost=5))
    world.propose(inserts(1))
    for _ in range(5):
        assert not world.state.finished
        lose(world, WriteRequested)
    assert (world.state.finished, world.state.stopped_by) == (True, "infrastructure")


def test_a_planner_that_is_never_answered_stops_the_run_all_the_same() -> None:
    world = World(SearchSettings(branches=1, max_lost=5))
    for _ in range(5):
        assert not world.state.finished
        lose(world, PlanRequested)
    assert (world.state.finished, world.state.stopped_by) == (True, "infrastructure")


def test_a_confirmation_is_never_given_up() -> None:
    world = World(SearchSettings(branches=1, max_lost=50))
    world.propose(inserts(1))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    cid = candidate("a").candidate_id
    world.give(built(world.requests(BuildRequested)[0].job_id, cid))
    world.give(evaluated(world.requests(EvaluationRequested)[0].job_id, cid, measured(2.0)))

    def again() -> BuildRequested:
        return next(request for request in world.requests(BuildRequested) if not request.branch_id)

    for _ in range(3):
        (confirmation,) = world.requests(ConfirmationRequested)
        world.give(JobLost(job_id=confirmation.job_id, kind="evaluate", error="gone"))
        for _ in range(2):
            world.give(JobLost(job_id=again().job_id, kind="build", error="gone"))
        world.give(built(again().job_id, cid))
    assert world.requests(ConfirmationRequested)
    assert not lost_attempts(world)
