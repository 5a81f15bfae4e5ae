"""Several workloads on screen."""

from __future__ import annotations

from ksearch_async.views.text import workload_span, workload_table
from messages.verdicts import Interval, TimedWorkload

WORKLOADS = tuple(
    TimedWorkload(
        name=name,
        latency_us=100 / speedup,
        reference_latency_us=100,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=0.9 * speedup, high=1.1 * speedup),
        pairs=12,
    )
    for name, speedup in {"short": 4.0, "shapes/long": 0.5}.items()
)


def test_a_table_has_a_row_per_workload_in_the_tasks_order() -> None:
    titles, short, long = workload_table(WORKLOADS)
    assert titles.split() == ["workload", "speedup", "95", "%", "interval", "latency", "us", "reference", "us", "pairs"]
    assert short.split() == ["short", "4.00x", "[3.60,", "4.40]", "25.0", "100.0", "12"]
    assert len(titles) == len(short) == len(long)


def test_one_workload_has_no_table_and_no_span() -> None:
    assert list(workload_table(())) == []
    assert workload_span(()) == ""


def test_the_live_view_says_how_far_they_lie_apart() -> None:
    assert workload_span(WORKLOADS) == "2 workloads: 0.50x (shapes/long) to 4.00x"
