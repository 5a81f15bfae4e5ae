from __future__ import annotations

import pytest

from actors.worker.fairness import Breaker, Limits

LIMITS = Limits(in_a_row=3, rest_s=10.0, permanent_rest_s=60.0, longest_rest_s=100.0)


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(LIMITS)


def rested_until(breaker: Breaker, queue: str, now: float) -> float:
    """Return when a queue is served again."""
    if breaker.admits(queue, now):
        return now
    (until,) = breaker.ends_of_rests(now)
    assert not breaker.admits(queue, until - 0.01)
    assert breaker.admits(queue, until)
    return until


def test_failures_that_may_pass_are_a_reason_to_rest_only_when_several_come_in_a_row(breaker: Breaker) -> None:
    for now in (1.0, 2.0):
        breaker.failed("q", "busy", now, permanent=False)
        assert rested_until(breaker, "q", now) == now
    breaker.succeeded("q")
    for now in (3.0, 4.0, 5.0):
        breaker.failed("q", "busy", now, permanent=False)
    assert rested_until(breaker, "q", 5.0) == 15.0
    assert breaker.reasons == {"q": "busy"}


def test_a_failure_that_will_not_pass_is_a_reason_at_once(breaker: Breaker) -> None:
    breaker.failed("q", "wrong key", 1.0, permanent=True)
    assert rested_until(breaker, "q", 1.0) == 61.0


def test_what_is_wrong_with_one_queue_is_no_reason_to_leave_another(breaker: Breaker) -> None:
    breaker.failed("q", "wrong key", 1.0, permanent=True)
    assert breaker.admits("p", 1.0)


def test_after_a_rest_one_job_is_taken_on_trial_and_more_once_it_was_done(breaker: Breaker) -> None:
    breaker.failed("q", "wrong key", 0.0, permanent=True)
    breaker.took("q")
    assert not breaker.admits("q", 70.0)
    breaker.succeeded("q")
    assert breaker.admits("q", 70.0)
    assert breaker.reasons == {}


def test_each_rest_is_twice_as_long_up_to_the_longest(breaker: Breaker) -> None:
    now, rests = 0.0, []
    for _ in range(4):
        breaker.took("q")
        breaker.failed("q", "wrong key", now, permanent=True)
        until = rested_until(breaker, "q", now)
        rests.append(until - now)
        now = until
    assert rests == [60.0, 100.0, 100.0, 100.0]


def test_jobs_that_were_in_hand_when_the_rest_began_make_it_no_longer(breaker: Breaker) -> None:
    for _ in range(16):
        breaker.failed("q", "wrong key", 1.0, permanent=True)
    assert rested_until(breaker, "q", 1.0) == 61.0


def test_a_trial_that_was_dropped_decides_nothing_and_the_next_job_is_the_trial(breaker: Breaker) -> None:
    breaker.failed("q", "wrong key", 0.0, permanent=True)
    breaker.took("q")
    breaker.undecided("q")
    assert breaker.admits("q", 60.0)
    assert breaker.reasons == {"q": "wrong key"}


def test_a_queue_that_is_no_longer_served_is_forgotten(breaker: Breaker) -> None:
    breaker.failed("q", "wrong key", 0.0, permanent=True)
    breaker.keep_only(("p",))
    assert breaker.admits("q", 0.0)
