"""Scores and traces of upstream from our verdicts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from evaluators.tasks.flashinfer.scoring import latencies_of, score, traces_of
from evaluators.tasks.flashinfer.trace_set import Environment, Trace, Workload, append_traces, read_traces
from messages.verdicts import (
    CallCheck,
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Rejected,
    TimedOut,
    TimedWorkload,
    Unstable,
    Verdict,
    Wrong,
)

SURE = Interval(low=1.0, high=1.0)
NAMES = ("a", "b")
WORKLOADS = tuple(Workload(uuid=name, axes={"rows": 3}, inputs={}) for name in NAMES)


def timed(name: str, latency_us: float, reference_latency_us: float) -> TimedWorkload:
    return TimedWorkload(
        name=name,
        latency_us=latency_us,
        reference_latency_us=reference_latency_us,
        speedup_vs_reference=reference_latency_us / latency_us,
        speedup_interval=SURE,
    )


MEASURED = Measured(
    timed=True,
    workloads=(timed("a", 10.0, 20.0), timed("b", 10.0, 80.0)),
    checks=(CallCheck(family="given", max_abs_error=0.25, error_ratio=0.5, workload="b"),),
)


ALONE = Measured(
    timed=True,
    latency_us=10.0,
    reference_latency_us=20.0,
    speedup_vs_reference=2.0,
    speedup_interval=SURE,
)
"""Of a task of one workload."""


def traced(verdict: Verdict) -> tuple[Trace, ...]:
    where = Environment(hardware="NVIDIA H200", libs={"torch": "2.13.0"})
    return traces_of(
        verdict, "softmax", WORKLOADS, solution="mine", environment=where, timestamp="2026-11-20T20:00:00+00:00"
    )


def test_means_are_arithmetic_as_upstreams_and_geometric_beside_them() -> None:
    found = score([(NAMES, MEASURED)], {"a": 5.0, "b": 40.0})
    assert found.vs_reference is not None
    assert (found.vs_reference.arithmetic, found.vs_reference.wins) == (5.0, 1.0)
    assert found.vs_reference.geometric == pytest.approx(4.0)
    assert found.vs_baseline is not None
    assert found.vs_baseline.arithmetic == 2.25
    assert found.vs_baseline.geometric == pytest.approx(math.sqrt(2.0))
    assert found.vs_baseline.wins == 0.5


@pytest.mark.parametrize(
    "verdict",
    [
        Wrong(reason="off", workload="b"),
        Crashed(reason="gone", workload="b"),
        TimedOut(reason="slow", stage="check", limit_s=1.0, workload="b"),
        Rejected(reason="library", rule="library call", workload="b"),
    ],
)
def test_one_failed_workload_makes_a_score_of_zero(verdict: Verdict) -> None:
    found = score([(("a",), ALONE), (NAMES, verdict)])
    assert found.failed == 1
    assert found.vs_reference is not None
    assert found.vs_reference.arithmetic == 0.0


def test_time_that_could_not_be_told_is_in_no_mean() -> None:
    found = score([(("a",), Unstable(reason="noise", speedup_interval=SURE)), (("b",), None)])
    assert (found.failed, found.untimed, found.vs_reference) == (0, 2, None)


def test_a_measured_candidate_has_a_trace_for_each_workload() -> None:
    first, second = traced(MEASURED)
    assert first.evaluation is not None
    assert second.evaluation is not None
    assert (first.workload.uuid, first.evaluation.status) == ("a", "PASSED")
    assert first.evaluation.performance is not None
    assert first.evaluation.performance.latency_ms == 0.01
    assert second.evaluation.performance is not None
    assert second.evaluation.performance.speedup_factor == 8.0
    assert second.evaluation.correctness is not None
    assert second.evaluation.correctness.max_absolute_error == 0.25


@pytest.mark.parametrize(
    ("verdict", "status", "count"),
    [
        (Wrong(reason="off", max_abs_error=math.inf, workload="b"), "INCORRECT_NUMERICAL", 1),
        (Wrong(reason="off"), "INCORRECT_NUMERICAL", 2),
        (DidNotBuild(reason="no"), "COMPILE_ERROR", 2),
        (Crashed(reason="gone", log="line"), "RUNTIME_ERROR", 2),
        (TimedOut(reason="slow", stage="check", limit_s=1.0), "TIMEOUT", 2),
    ],
)
def test_a_failure_is_told_in_upstreams_words_of_the_workloads_that_it_concerns(
    verdict: Verdict, status: str, count: int
) -> None:
    traces = traced(verdict)
    assert len(traces) == count
    for trace in traces:
        assert trace.evaluation is not None
        assert trace.evaluation.status == status
        assert (trace.evaluation.correctness is not None) == (status == "INCORRECT_NUMERICAL")
        assert trace.evaluation.performance is None


def test_tasks_of_one_workload_each_come_to_one_score() -> None:
    found = score([(("a",), ALONE), (("b",), ALONE)], {"a": 20.0})
    assert found.vs_reference is not None
    assert (found.vs_reference.arithmetic, found.vs_reference.workloads, found.untimed) == (2.0, 2, 0)
    assert found.vs_baseline is not None
    assert (found.vs_baseline.arithmetic, found.vs_baseline.workloads) == (2.0, 1)


def test_what_was_not_timed_has_no_trace() -> None:
    assert traced(Measured(timed=False)) == ()


def test_traces_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "us" / "op" / "softmax.jsonl"
    traces = (*traced(MEASURED), *traced(Wrong(reason="off", max_abs_error=math.inf, workload="b")))
    append_traces(path, traces[:1])
    append_traces(path, traces[1:])
    assert read_traces(tmp_path, "softmax") == traces
    assert latencies_of(traces, "mine") == {"a": 10.0, "b": 10.0}
    assert latencies_of(traces, "other") == {}
