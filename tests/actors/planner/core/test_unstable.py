"""A time that could not be told: the candidate is correct, is measured again, and is never debugged."""

from __future__ import annotations

from actors.planner.core.state import active
from messages.events import RunResumed, StopRequested
from messages.facts import AttemptFinished, BuildRequested, EvaluationRequested, WriteRequested
from messages.verdicts import Interval, Unstable
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

UNSTABLE = Unstable(reason="±40 %", speedup_interval=Interval(low=1.2, high=2.8))
LESS = Unstable(reason="±50 %", speedup_interval=Interval(low=1.0, high=3.2))


def finished(world: World) -> list[AttemptFinished]:
    return [fact for fact in world.facts if isinstance(fact, AttemptFinished)]


def measured_once(rounds: int = 100) -> World:
    """A search whose first candidate's time could not be told."""
    world = search(window=3, rounds=rounds)
    world.propose(inserts(1))
    world.attempt("a", UNSTABLE)
    return world


def test_the_same_candidate_is_measured_again_and_no_coder_is_asked() -> None:
    world = measured_once()
    assert not world.requests(WriteRequested)
    assert not world.requests(BuildRequested), "its artifact is there"
    (again,) = world.requests(EvaluationRequested)
    assert isinstance(again, EvaluationRequested)
    assert again.candidate_id == candidate("a").candidate_id
    assert only_branch(world).attempts == ()
    assert [(fact.round, fact.measured_again) for fact in finished(world)] == [(1, True)]


def test_what_the_second_measurement_tells_is_what_counts() -> None:
    world = measured_once()
    world.evaluate("a", measured(1.5))
    (attempt,) = only_branch(world).attempts
    assert (attempt.fate, attempt.credit, attempt.round) == ("measured", 1.5, 2)
    assert world.state.rounds == 2
    assert writes(world)[-1].mode == "improve"


def test_what_stays_unstable_is_correct_and_is_improved_not_debugged() -> None:
    world = measured_once()
    world.evaluate("a", LESS)
    branch = only_branch(world)
    (attempt,) = branch.attempts
    assert attempt.fate == "unstable"
    assert branch.best is not None
    assert branch.best.credit == 1.0, "the better of two measurements is never what counts"
    asked = writes(world)[-1]
    assert (asked.mode, asked.base_id) == ("improve", candidate("a").candidate_id)
    assert "measured twice" in world.state.known[candidate("a").candidate_id].outcome


def test_it_closes_its_node_and_never_becomes_the_incumbent() -> None:
    world = measured_once()
    world.evaluate("a", UNSTABLE)
    for text in ("b", "c", "d"):
        world.attempt(text, WRONG)
    node = world.state.node("n1")
    assert (node.state, node.failures) == ("closed", 0)
    assert world.state.incumbent is None


def test_it_is_measured_twice_at_most() -> None:
    world = measured_once()
    world.evaluate("a", UNSTABLE)
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    assert not world.requests(EvaluationRequested)
    assert world.state.rounds == 2


def test_without_a_round_left_it_counts_as_it_was_measured() -> None:
    world = measured_once(rounds=1)
    assert world.state.finished
    assert world.state.rounds == 1
    assert world.state.node("n1").state == "closed"


def test_who_wrote_the_same_meanwhile_waits_for_the_second_measurement() -> None:
    world = search(branches=2)
    world.propose(inserts(2))
    world.attempt("a", UNSTABLE)
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    assert [draft.awaiting for branch in active(world.state) for draft in branch.drafts] == [False, True]
    world.evaluate("a", measured(1.5))
    assert [branch.attempts[0].credit for branch in world.state.branches.values()] == [1.5, 1.5]


def test_a_run_that_is_stopped_measures_again_once_it_goes_on() -> None:
    world = search()
    world.propose(inserts(1))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    (build,) = world.requests(BuildRequested)
    world.give(built(build.job_id, candidate("a").candidate_id))
    world.give(StopRequested(reason="lunch"))
    world.evaluate("a", UNSTABLE)
    assert world.state.finished
    world.give(RunResumed(run_id=world.state.run_id))
    world.evaluate("a", measured(1.5))
    assert [fact.fate for fact in finished(world)] == ["unstable", "measured"]
    assert len(facts_of(world, EvaluationRequested)) == 2


def test_of_a_time_that_could_not_be_told_the_lower_end_is_shown_and_has_to_be_beaten() -> None:
    world = measured_once()
    world.evaluate("a", Unstable(reason="±80 %", speedup_interval=Interval(low=1.3, high=15.0)))
    best = only_branch(world).best
    assert best is not None
    assert (best.credit, best.speedup, best.speedup_high, best.is_least) == (1.2, 1.2, 2.8, True)
    world.attempt("b", measured(1.6))
    assert [fact.improved for fact in finished(world)] == [False, True, True]
    best = only_branch(world).best
    assert best is not None
    assert not best.is_least


def test_of_a_time_that_was_not_looked_at_nothing_is_known() -> None:
    world = search(rounds=1)
    world.propose(inserts(1))
    world.attempt("a", Unstable(reason="no core was free", speedup_interval=Interval(low=0.0, high=0.0)))
    best = world.state.node("n1").best
    assert best is not None
    assert (best.credit, best.speedup) == (None, None)
