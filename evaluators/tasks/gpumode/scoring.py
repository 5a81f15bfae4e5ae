"""The competition's figure from our verdicts, and its lines for people.

A submission that fails a case has no figure. Otherwise it is the last, the mean or the geometric mean of its
benchmarks' times; smaller is better. The competition's times are means over repeated calls, ours medians
(docs/how-we-measure.md); the statistic over benchmarks is theirs.

If the competition's harness reads booleans of a problem as true, there are two figures: over the cases as intended, and
as that harness reads them (`upstream-benchmark/…`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evaluators.tasks.gpumode.reading import (
    BENCHMARK,
    UPSTREAM,
    Ranking,
    flag_names,
    read_ranking,
    read_task,
    recognizes,
)
from evaluators.tasks.selectors import parse_selector
from messages.verdicts import CORRECT_FATES, Measured, Verdict, fate_of

_BENCHMARK, _UPSTREAM = "benchmark/", "upstream-benchmark/"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Score that ranks a submission."""

    ranking_by: Ranking
    as_meant_us: float | None = None
    """Figure over the benchmarks as intended; null: it is not correct on them, or they were not timed."""
    as_upstream_us: float | None = None
    """Figure over the benchmarks as the competition's harness reads them; null also if there is no difference."""
    benchmarks: dict[str, float] = msgspec.field(default_factory=dict)
    """Latency of each in us, by name."""


def score(verdict: Verdict, ranking_by: Ranking, *, only: str = "") -> Score:
    """Return the figure of a verdict.

    Args:
        verdict: verdict on a task with the competition's benchmarks as workloads.
        ranking_by: the value in `task.yml`.
        only: name of the workload, if the task has only one.
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


_MEANS: dict[Ranking, str] = {
    "last": "the last of",
    "mean": "mean of",
    "geom": "geometric mean of",
}


class Competition(msgspec.Struct, frozen=True, kw_only=True):
    """How a problem's submissions are ranked, for one choice of its cases."""

    name: str
    """Name of the problem as given, without the cases."""
    ranking_by: Ranking
    cases: tuple[str, ...]
    """Names of the workloads that are timed."""
    reads_otherwise: bool
    """True if the competition's harness reads a false boolean of the cases as true."""

    def score(self, verdict: Verdict) -> Score:
        """Return the score of a verdict.

        If the harness reads every case as intended, the two figures are the same.
        """
        found = score(verdict, self.ranking_by, only=self.cases[0] if len(self.cases) == 1 else "")
        if self.reads_otherwise or found.as_meant_us is None:
            return found
        return msgspec.structs.replace(found, as_upstream_us=found.as_meant_us)

    def lines(self, verdict: Verdict) -> Iterator[str]:
        """Yield the figures for people, or the reason why there are none."""
        found = self.score(verdict)
        benchmarks = [name for name in self.cases if name.startswith(f"{BENCHMARK}/")]
        upstream = [name for name in self.cases if name.startswith(f"{UPSTREAM}{BENCHMARK}/")]
        if not benchmarks and not upstream:
            yield f"score      none: no benchmark is among these cases; {self.name} has them"
            return
        if why_not := _why_none(verdict):
            yield f"score      none: {why_not}"
            return
        if found.as_meant_us is not None:
            means = f"{_MEANS[self.ranking_by]} {len(benchmarks)} benchmark{'s' if len(benchmarks) > 1 else ''}"
            yield f"score      {found.as_meant_us:,.1f} us ({means}, smaller is better), the cases as they are meant"
        if not self.reads_otherwise:
            yield "upstream   the same: the competition's harness reads these cases as they are meant"
        elif found.as_upstream_us is not None:
            yield f"upstream   {found.as_upstream_us:,.1f} us, the cases as the competition's harness reads them"
        else:
            yield (
                "upstream   not measured: the competition's harness reads booleans as true; "
                f"{self.name}:{BENCHMARK},{UPSTREAM}{BENCHMARK} has both"
            )


def find_competition(name: str) -> Competition | None:
    """Return how submissions to a task are ranked; None if it is not a competition's problem.

    Args:
        name: name of the task, with its cases.

    Raises:
        ConfigError: it is one, and cannot be read.
    """
    asked = parse_selector(name)
    if asked.source != "gpumode" and (asked.source or asked.path is None or not recognizes(asked.path)):
        return None
    document, task = read_ranking(asked.within), read_task(asked.within)
    prefix = f"{asked.source}:" if asked.source else ""
    return Competition(
        name=f"{prefix}{asked.path}",
        ranking_by=document.ranking_by,
        cases=tuple(one.name for one in task.workloads if not one.hidden),
        reads_otherwise=bool(flag_names(document)),
    )


def _why_none(verdict: Verdict) -> str:
    """Return the reason why a verdict has no figure; empty if it has one."""
    if fate_of(verdict) not in CORRECT_FATES:
        return "a submission that fails a case has none"
    if not isinstance(verdict, Measured) or not verdict.timed:
        return "its time is not known"
    return ""
