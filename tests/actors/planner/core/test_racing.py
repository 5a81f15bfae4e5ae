"""What is worth timing exactly, and what becomes of candidates that were stopped early."""

from __future__ import annotations

import pytest

from messages.events import Event
from messages.facts import AttemptFinished, BuildRequested, EvaluationRequested, IncumbentChanged, WriteRequested
from messages.verdicts import Interval, Outpaced, Scored
from tests.actors.planner.core.world import (
    World,
    built,
    candidate,
    facts_of,
    inserts,
    measured,
    only_branch,
    search,
    written,
)

SLOW = Outpaced(reason="about 0.41x after 4 pairs", speedup_interval=Interval(low=0.4, high=0.42))


def bars(world: World) -> list[float | None]:
    return [fact.keep_above for fact in world.facts if isinstance(fact, EvaluationRequested)]


def test_the_first_attempt_under_the_root_is_timed_exactly_from_half_the_references_speed_on() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("0", measured(2.0))
    assert bars(world) == [0.5]


def test_a_branch_with_a_candidate_asks_for_nine_tenths_of_its_best() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    for text, credit in (("0", 2.0), ("1", 1.5), ("2", 3.0), ("3", 1.0)):
        world.attempt(text, measured(credit))
    assert bars(world) == pytest.approx([0.5, 1.8, 1.8, 2.7])


def test_the_first_attempt_under_a_candidate_asks_for_half_of_it() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("0", measured(3.0))
    world.attempt("1", measured(2.9))
    world.propose(inserts(1, parent="n1", prefix="child"))
    world.attempt("2", measured(1.0))
    assert bars(world)[-1] == 1.5


def test_scores_are_not_raced() -> None:
    world = World(search().state.settings, initial=candidate("initial"))
    world.propose(inserts(1))
    world.attempt("0", Scored(score=2.0))
    world.attempt("1", Scored(score=1.0))
    assert bars(world) == [None, None]


def test_an_outpaced_candidate_is_correct_and_closes_its_node_if_the_branch_has_none_better() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("0", SLOW)
    assert world.requests(WriteRequested)[0].mode == "improve"
    world.attempt("1", Outpaced(reason="slower", speedup_interval=Interval(low=0.1, high=0.2)))
    node = world.state.node("n1")
    assert node.state == "closed"
    assert node.best is not None
    assert (node.best.candidate_id, node.best.credit) == (candidate("0").candidate_id, 0.4)


def test_an_outpaced_candidate_is_no_incumbent() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("0", SLOW)
    assert world.state.incumbent is None
    world.attempt("1", measured(0.3))
    assert len(facts_of(world, IncumbentChanged)) == 1


def test_an_improvement_on_an_outpaced_candidate_is_one() -> None:
    world = search(window=9)
    world.propose(inserts(1))
    world.attempt("0", SLOW)
    world.attempt("1", measured(0.6))
    attempts = [fact for fact in world.facts if isinstance(fact, AttemptFinished)]
    assert [attempt.improved for attempt in attempts] == [True, True]
    assert only_branch(world).best is not None
    assert only_branch(world).best.credit == 0.6  # type: ignore[union-attr]


def test_the_bar_is_that_of_the_time_of_the_request() -> None:
    world = search(branches=2, window=9)
    world.propose(inserts(2))
    first, second = world.requests(WriteRequested)
    answers: list[Event] = [written(first.job_id, "0"), written(second.job_id, "1")]
    for answer in answers:
        world.give(answer)
    for build in world.requests(BuildRequested):
        assert isinstance(build, BuildRequested)
        world.give(built(build.job_id, build.candidate_id))
    assert bars(world) == [0.5, 0.5]
