"""Several drafts of one attempt: written and evaluated at once, the best goes on."""

from __future__ import annotations

import pytest

from actors.planner.core.state import Branch
from messages.events import JobLost, RunResumed, StopRequested
from messages.facts import AttemptFinished, BuildRequested, CandidateAwaited, WriteRequested
from messages.verdicts import Crashed, Measured, Verdict
from tests.actors.planner.core.world import (
    WRONG,
    World,
    built,
    candidate,
    facts_of,
    inserts,
    measured,
    only_branch,
    search,
    writes,
    written,
)


def asked(world: World) -> list[WriteRequested]:
    return [request for request in world.requests(WriteRequested) if isinstance(request, WriteRequested)]


def drawn(world: World, *answers: tuple[str, Verdict]) -> Branch:
    """Answer each draft of the attempt under way."""
    for (text, verdict), request in zip(answers, asked(world), strict=True):
        world.give(written(request.job_id, text))
        (build,) = world.requests(BuildRequested)
        assert isinstance(build, BuildRequested)
        world.give(built(build.job_id, build.candidate_id))
        world.evaluate(text, verdict)
    return only_branch(world)


def test_the_drafts_of_an_attempt_are_asked_for_at_once_and_each_is_a_draw_of_its_own() -> None:
    world = search(samples=3)
    world.propose(inserts(1))
    assert [(request.draft, request.mode) for request in asked(world)] == [(0, "apply"), (1, "apply"), (2, "apply")]
    assert len({request.job_id for request in asked(world)}) == 3


def test_an_attempt_is_over_when_all_its_drafts_are_and_the_best_is_its_outcome() -> None:
    world = search(samples=3)
    world.propose(inserts(1))
    first, second, third = asked(world)
    world.give(written(first.job_id, "slow"))
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate("slow").candidate_id))
    world.evaluate("slow", measured(1.2))
    assert only_branch(world).attempts == ()
    assert [draft.number for draft in only_branch(world).drafts] == [1, 2]
    world.give(written(third.job_id, None))
    assert not writes(world)[3:], "the next attempt waits for the last draft"
    world.give(written(second.job_id, "fast"))
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate("fast").candidate_id))
    world.evaluate("fast", measured(2.0))
    (attempt,) = only_branch(world).attempts
    assert (attempt.number, attempt.candidate_id, attempt.credit) == (1, candidate("fast").candidate_id, 2.0)
    assert [outcome.split(":")[0] for outcome in attempt.others] == ["measured", "unusable"]
    assert [(request.mode, request.base_id) for request in asked(world)] == [
        ("improve", candidate("fast").candidate_id)
    ] * 3


def test_of_drafts_that_all_failed_the_nearest_to_a_correct_one_is_debugged() -> None:
    world = search(samples=2)
    world.propose(inserts(1))
    branch = drawn(world, ("crash", Crashed(reason="signal 11")), ("wrong", WRONG))
    assert [attempt.fate for attempt in branch.attempts] == ["wrong"]
    assert branch.attempts[0].others == ("crashed: signal 11",)
    assert {request.current_id for request in asked(world)} == {candidate("wrong").candidate_id}


def test_rounds_count_evaluations_and_the_window_counts_attempts() -> None:
    world = search(samples=2, window=2)
    world.propose(inserts(1))
    drawn(world, ("a", measured(2.0)), ("b", measured(1.0)))
    branch = drawn(world, ("c", WRONG), ("d", WRONG))
    assert (world.state.rounds, branch.stale) == (4, 1)
    for text in ("e", "f"):
        world.attempt(text, WRONG)
    assert world.state.node("n1").state == "closed"
    assert world.state.node("n1").rounds == 6


def test_no_more_drafts_are_drawn_than_rounds_are_left() -> None:
    world = search(samples=4, rounds=3)
    world.propose(inserts(1))
    assert len(asked(world)) == 3
    for text in ("a", "b", "c"):
        world.attempt(text, WRONG)
    assert world.state.finished
    assert world.state.rounds == 3


def test_two_drafts_that_are_the_same_share_one_evaluation() -> None:
    world = search(samples=2)
    world.propose(inserts(1))
    for request in asked(world):
        world.give(written(request.job_id, "same"))
    assert [fact.draft for fact in world.facts if isinstance(fact, CandidateAwaited)] == [1]
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate("same").candidate_id))
    world.evaluate("same", measured(2.0))
    assert world.state.rounds == 1
    (attempt,) = only_branch(world).attempts
    assert attempt.credit == 2.0


def test_a_lost_draft_is_asked_for_again_as_the_same_one() -> None:
    world = search(samples=2)
    world.propose(inserts(1))
    _, second = asked(world)
    world.give(JobLost(job_id=second.job_id, kind="write", error="gone"))
    assert sorted(request.draft for request in asked(world)) == [0, 1]


def test_drafts_of_a_stopped_run_are_asked_for_again_and_those_that_ended_count() -> None:
    world = search(samples=2)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(StopRequested(reason="enough"))
    assert world.state.finished
    world.give(RunResumed(run_id=world.state.run_id))
    (left,) = asked(world)
    world.give(written(left.job_id, None))
    (attempt,) = only_branch(world).attempts
    assert (attempt.credit, len(attempt.others)) == (2.0, 1)


def test_a_draft_that_the_budget_of_calls_cannot_pay_for_again_is_left_out_of_its_attempt() -> None:
    world = search(samples=3, max_calls=4)
    world.propose(inserts(1))
    world.attempt("a", measured(2.0))
    world.give(RunResumed(run_id=world.state.run_id))  # two drafts were lost, and are paid for
    assert not asked(world)
    assert len(facts_of(world, AttemptFinished)) == 1
    assert world.state.node("n1").best is not None


def test_extra_samples_draw_one_draft() -> None:
    world = search(branches=2, samples=3)
    world.propose(inserts(1))
    extra = next(branch for branch in world.state.branches.values() if branch.extra)
    assert len(extra.drafts) == 1


@pytest.mark.parametrize("text", ["a", "b"])
def test_an_improvement_of_any_draft_restarts_the_window(text: str) -> None:
    world = search(samples=2, window=5)
    world.propose(inserts(1))
    drawn(world, ("first", measured(1.0)), ("other", WRONG))
    verdicts: dict[str, Measured] = {"a": measured(0.9), "b": measured(0.9)}
    verdicts[text] = measured(2.0)
    branch = drawn(world, ("a", verdicts["a"]), ("b", verdicts["b"]))
    assert branch.stale == 0
    assert branch.best is not None
    assert branch.best.credit == 2.0


def test_the_verdict_of_one_draft_is_not_taken_for_another() -> None:
    world = search(samples=2)
    world.propose(inserts(1))
    first, second = asked(world)
    world.give(written(first.job_id, "a"))
    world.give(written(second.job_id, "b"))
    builds = {request.candidate_id: request for request in world.requests(BuildRequested)}
    world.give(built(builds[candidate("b").candidate_id].job_id, candidate("b").candidate_id))
    world.evaluate("b", measured(2.0))
    left = only_branch(world).drafts
    assert [(draft.number, draft.candidate_id) for draft in left] == [(0, candidate("a").candidate_id)]
