"""TritonBench's metrics from our verdicts."""

from __future__ import annotations

import pytest

from evaluators.tasks.tritonbench.scoring import A100, Outcome, Work, outcome_of, score
from messages.verdicts import Crashed, DidNotBuild, Interval, Measured, TimedWorkload, Wrong


def timed(*latencies: tuple[float, float]) -> Measured:
    """Return a verdict of sizes with these latencies, the gold's first."""
    return Measured(
        timed=True,
        workloads=tuple(
            TimedWorkload(
                name=f"perf/{number}",
                latency_us=candidate,
                reference_latency_us=gold,
                speedup_vs_reference=gold / candidate,
                speedup_interval=Interval(low=1.0, high=2.0),
            )
            for number, (gold, candidate) in enumerate(latencies)
        ),
    )


def test_the_sum_of_times_decides_and_the_mean_of_ratios_stands_beside_it() -> None:
    outcome = outcome_of(timed((10.0, 40.0), (1000.0, 250.0)))
    assert outcome.speedup == pytest.approx(1010 / 290)
    assert outcome.geometric_speedup == pytest.approx(1.0)
    assert outcome.efficiency is None


def test_efficiency_is_the_largest_share_of_a_peak_over_sizes() -> None:
    work = {0: Work(bytes_moved=2039e3, flops=0.0), 1: Work(bytes_moved=0.0, flops=312e6 / 4)}
    # 2039 kB in 2 us are half of 2039 GB/s; 78 MFLOP in 1 us are a quarter of 312 TFLOPS.
    assert outcome_of(timed((1.0, 2.0), (1.0, 1.0)), work, A100).efficiency == pytest.approx(50.0)


def test_a_wrong_candidate_was_called_and_one_that_does_not_build_was_not() -> None:
    verdicts = [
        Wrong(reason="zeros"),
        DidNotBuild(reason="syntax"),
        Crashed(reason="raised"),
        None,
        Measured(timed=False),
    ]
    found = score([outcome_of(verdict) for verdict in verdicts], "T")
    assert (found.problems, found.called, found.correct) == (5, 2, 1)
    assert (found.call_accuracy, found.execution_accuracy) == (0.4, 0.2)
    assert found.speedup_mean is None


@pytest.mark.parametrize(("suite", "left_out", "mean"), [("G", 2, (2.0 + 0.05) / 2), ("T", 2, 2.0)])
def test_what_the_upstream_takes_for_a_mistake_is_in_the_other_mean_only(
    suite: str, left_out: int, mean: float
) -> None:
    outcomes = [
        Outcome(called=True, correct=True, speedup=2.0, geometric_speedup=2.0, efficiency=10.0),
        Outcome(called=True, correct=True, speedup=12.0, geometric_speedup=12.0, efficiency=10.0),
        Outcome(called=True, correct=True, speedup=0.05, geometric_speedup=0.05, efficiency=10.0),
    ]
    if suite == "G":
        outcomes.append(Outcome(called=True, correct=True, speedup=3.0, geometric_speedup=3.0, efficiency=120.0))
    found = score(outcomes, "G" if suite == "G" else "T")
    assert found.left_out == left_out
    assert found.speedup_upstream == pytest.approx(mean)
    assert found.speedup_mean == pytest.approx(sum(one.speedup or 0 for one in outcomes) / len(outcomes))
    # The efficiency above 100 % is among what is left out.
    assert found.efficiency_mean == pytest.approx(10.0)
