"""What is taken from a stream that others write to."""

from __future__ import annotations

from math import inf, nan

import pytest
from structlog.testing import capture_logs

from actors.bus.base import Posted
from actors.bus.stream import body_of
from messages.base import Role
from messages.codec import Body, encode
from messages.events import CandidateEvaluated, ClockTicked, RunResumed
from messages.verdicts import Measured, Wrong


def posted(body: Body, role: Role = "evaluator") -> Posted:
    return Posted(seq=7, at="", msg_id="e1.r", payload=encode(body), role=role)


def evaluated(verdict: Measured | Wrong) -> CandidateEvaluated:
    return CandidateEvaluated(job_id="e1", candidate_id="c", verdict=verdict, device="cpu")


@pytest.mark.parametrize("error", [nan, inf, -inf, -nan])
def test_numbers_that_no_journal_can_keep_are_left_out(error: float) -> None:
    with capture_logs() as logs:
        assert body_of(posted(evaluated(Wrong(reason="r", max_abs_error=error)))) is None
    assert [(line["event"], line["seq"], line["publisher"]) for line in logs] == [
        ("event left out: it holds a number that JSON does not have", 7, "evaluator")
    ]


def test_bytes_that_only_look_like_such_a_number_are_no_reason() -> None:
    body = evaluated(Wrong(reason="x", max_abs_error=1.7e308))
    assert body_of(posted(body)) == body
    lookalike = Posted(
        seq=1, at="", msg_id="m", role="planner", payload=encode(ClockTicked(elapsed_s=float.fromhex("0x1.bcb7ff8p+0")))
    )
    assert body_of(lookalike) == ClockTicked(elapsed_s=float.fromhex("0x1.bcb7ff8p+0"))


def test_what_is_not_its_publishers_to_say_is_left_out() -> None:
    with capture_logs() as logs:
        assert body_of(posted(RunResumed(run_id="r1"))) is None
    assert [(line["event"], line["event_type"]) for line in logs] == [
        ("event left out: it is not its publisher's to say", "RunResumed")
    ]
