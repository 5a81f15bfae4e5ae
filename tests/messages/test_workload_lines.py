"""What is said of a candidate on several workloads, in lines for models."""

from __future__ import annotations

from messages.verdicts import Interval, Measured, Outpaced, TimedWorkload, Wrong, workload_lines

INTERVAL = Interval(low=1.5, high=1.75)


def timed(name: str, speedup: float) -> TimedWorkload:
    return TimedWorkload(
        name=name,
        latency_us=100 / speedup,
        reference_latency_us=100,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=0.9 * speedup, high=1.1 * speedup),
    )


def test_each_workload_has_a_line_the_slowest_first() -> None:
    verdict = Measured(timed=True, workloads=(timed("short", 4), timed("long", 0.5)))
    assert workload_lines(verdict) == (
        "long: 0.50x the reference [0.45, 0.55], 200.0 us against 100.0 us",
        "short: 4.00x the reference [3.60, 4.40], 25.0 us against 100.0 us",
    )


def test_the_lines_are_few_however_many_workloads_there_are() -> None:
    many = tuple(timed("w" * 100 + str(number), 1 + number) for number in range(100))
    lines = workload_lines(Outpaced(reason="slow", speedup_interval=INTERVAL, workloads=many))
    assert len(lines) == 13
    assert lines[-1] == "88 more workloads: 13.00x to 100.00x"
    assert all(len(line) < 160 for line in lines)


def test_there_are_none_of_one_workload_or_of_a_failure() -> None:
    assert workload_lines(Measured(timed=True)) == ()
    assert workload_lines(Wrong(reason="3 of 4 wrong", workload="short")) == ()
