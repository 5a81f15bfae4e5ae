"""The competition's figure from verdicts."""

from __future__ import annotations

import pytest

from evaluators.tasks.gpumode.reading import Ranking
from evaluators.tasks.gpumode.scoring import score
from messages.verdicts import Interval, Measured, TimedWorkload, Wrong


def timed(name: str, latency_us: float) -> TimedWorkload:
    return TimedWorkload(
        name=name,
        latency_us=latency_us,
        reference_latency_us=9.0,
        speedup_vs_reference=1.0,
        speedup_interval=Interval(low=1.0, high=1.0),
    )


VERDICT = Measured(
    timed=True,
    latency_us=1.0,
    workloads=tuple(
        timed(name, latency)
        for name, latency in (
            ("benchmark/10", 16.0),
            ("benchmark/2", 4.0),
            ("upstream-benchmark/2", 2.0),
            ("upstream-benchmark/10", 8.0),
            ("test/0", 1.0),
        )
    ),
)


@pytest.mark.parametrize(("ranking", "meant", "upstream"), [("last", 16, 8), ("mean", 10, 5), ("geom", 8, 4)])
def test_benchmarks_count_as_the_problem_says_in_their_order(ranking: Ranking, meant: float, upstream: float) -> None:
    found = score(VERDICT, ranking)
    assert found.as_meant_us == pytest.approx(meant)
    assert found.as_upstream_us == pytest.approx(upstream)


def test_a_single_benchmark_has_the_verdict_s_own_latency() -> None:
    assert score(Measured(timed=True, latency_us=3.0), "geom", only="benchmark/0").as_meant_us == pytest.approx(3.0)


def test_what_is_wrong_or_not_timed_has_no_figure() -> None:
    for verdict in (Wrong(reason="3 of 4 elements"), Measured(timed=False)):
        assert score(verdict, "geom").as_meant_us is None
