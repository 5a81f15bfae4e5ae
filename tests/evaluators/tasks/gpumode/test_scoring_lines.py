"""What a competition says of verdicts, for one choice of a problem's cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks.gpumode.scoring import find_competition
from messages.base import ConfigError
from messages.verdicts import Measured, Verdict, Wrong
from tests.evaluators.tasks.gpumode import problems
from tests.evaluators.tasks.gpumode.test_scoring import timed


@pytest.fixture
def masked(tmp_path: Path) -> str:
    return f"gpumode:{problems.masked(tmp_path)}"


def measured(**latencies_us: float) -> Measured:
    """Return a verdict with these times; `up_` stands for what the harness reads."""
    named = {name.replace("up_", "upstream-").replace("_", "/"): us for name, us in latencies_us.items()}
    return Measured(timed=True, latency_us=1.0, workloads=tuple(timed(name, us) for name, us in named.items()))


def said(name: str, verdict: Verdict) -> str:
    competition = find_competition(name)
    assert competition is not None
    return "\n".join(competition.lines(verdict))


BOTH = measured(benchmark_0=4.0, benchmark_1=9.0, up_benchmark_0=4.0, up_benchmark_1=16.0)


def test_both_figures_are_said_where_the_harness_reads_cases_otherwise(masked: str) -> None:
    assert said(f"{masked}:benchmark,upstream-benchmark", BOTH) == (
        "score      6.0 us (geometric mean of 2 benchmarks, smaller is better), the cases as they are meant\n"
        "upstream   8.0 us, the cases as the competition's harness reads them"
    )
    competition = find_competition(f"{masked}:benchmark,upstream-benchmark")
    assert competition is not None
    found = competition.score(BOTH)
    assert found.ranking_by == "geom"
    assert found.as_meant_us == pytest.approx(6.0)
    assert found.as_upstream_us == pytest.approx(8.0)
    assert set(found.benchmarks) == {f"{group}benchmark/{number}" for group in ("", "upstream-") for number in (0, 1)}


def test_what_was_not_measured_is_said_with_what_would(masked: str) -> None:
    told = said(masked, measured(benchmark_0=4.0, benchmark_1=9.0))
    assert "score      6.0 us" in told
    assert (
        f"not measured: the competition's harness reads booleans as true; {masked}:benchmark,upstream-benchmark" in told
    )
    assert said(f"{masked}:upstream-benchmark", measured(up_benchmark_0=4.0, up_benchmark_1=16.0)).startswith(
        "upstream "
    )
    assert said(f"{masked}:test", measured(test_0=4.0)) == (
        f"score      none: no benchmark is among these cases; {masked} has them"
    )


def test_without_false_booleans_the_figures_are_one(tmp_path: Path) -> None:
    document = problems.MASKED_YML.replace("False", "True")
    name = f"gpumode:{problems.write_problem(tmp_path, 'masked', document, problems.MASKED)}"
    verdict = measured(benchmark_0=4.0, benchmark_1=9.0)
    assert "upstream   the same" in said(name, verdict)
    competition = find_competition(name)
    assert competition is not None
    assert competition.score(verdict).as_upstream_us == pytest.approx(6.0)


def test_a_problem_of_one_benchmark_has_the_verdicts_own_time(masked: str) -> None:
    assert "score      3.0 us (geometric mean of 1 benchmark," in said(
        f"{masked}:benchmark/1", Measured(timed=True, latency_us=3.0)
    )


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (Wrong(reason="3 of 4 elements"), "a submission that fails a case has none"),
        (Measured(timed=False), "its time is not known"),
    ],
)
def test_why_there_is_no_figure_is_said(masked: str, verdict: Verdict, why: str) -> None:
    assert said(masked, verdict) == f"score      none: {why}"


def test_other_tasks_are_in_no_competition(tmp_path: Path, masked: str) -> None:
    for name in ("softmax_rows", "softmax_rows:gpu", "kernelbench:1/1", "mine.py", str(tmp_path)):
        assert find_competition(name) is None
    assert find_competition(masked.removeprefix("gpumode:")) is not None
    with pytest.raises(ConfigError, match="no GPUMode problem"):
        find_competition(f"gpumode:{tmp_path / 'none'}")
