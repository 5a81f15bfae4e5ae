"""The competition's figure from our verdicts. Pure.

A submission that fails a case has none. Else it is the last, the mean or the geometric mean of its benchmarks' times,
smaller is better. The competition's times are means over repeated calls, ours medians (docs/how-we-measure.md); the
statistic over benchmarks is theirs.

Where a problem has booleans that the competition's harness reads as true, there are two figures: over the cases as
they are meant, and as that harness reads them (`upstream-benchmark/…`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from evaluators.tasks.gpumode.document import Ranking
from messages.verdicts import Measured, Verdict

_BENCHMARK, _UPSTREAM = "benchmark/", "upstream-benchmark/"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission would be ranked by."""

    ranking_by: Ranking
    as_meant_us: float | None = None
    """Over the benchmarks as they are meant; null: it is not correct on them, or they were not timed."""
    as_upstream_us: float | None = None
    """Over the benchmarks as the competition's harness reads them; null also where there is no difference."""
    benchmarks: dict[str, float] = msgspec.field(default_factory=dict)
    """Latency of each in µs, by name."""


def score(verdict: Verdict, ranking_by: Ranking, *, only: str = "") -> Score:
    """Return the figure of a verdict.

    Args:
        verdict: on a task with the competition's benchmarks as workloads.
        ranking_by: as `task.yml` says.
        only: name of the workload, where the task has one.
    """
    if not isinstance(verdict, Measured) or not verdict.timed:
        return Score(ranking_by=ranking_by)
    times = {one.name: one.latency_us for one in verdict.workloads}
    if not times and verdict.latency_us is not None:
        times = {only: verdict.latency_us}
    return Score(
        ranking_by=ranking_by,
        as_meant_us=_ranked(times, _BENCHMARK, ranking_by),
        as_upstream_us=_ranked(times, _UPSTREAM, ranking_by),
        benchmarks=times,
    )


def _ranked(times: Mapping[str, float], group: str, ranking_by: Ranking) -> float | None:
    numbered = sorted(
        (int(name.removeprefix(group)), latency) for name, latency in times.items() if name.startswith(group)
    )
    return rank([latency for _, latency in numbered], ranking_by) if numbered else None


def rank(latencies_us: Sequence[float], ranking_by: Ranking) -> float:
    """Return the figure of benchmarks in their order; at least one."""
    if ranking_by == "last":
        return latencies_us[-1]
    if ranking_by == "mean":
        return math.fsum(latencies_us) / len(latencies_us)
    return math.exp(math.fsum(map(math.log, latencies_us)) / len(latencies_us))
