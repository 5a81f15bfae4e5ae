"""How fast a candidate is on each of several workloads, in lines of equal columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from messages.verdicts import TimedWorkload

_WIDEST = 40


def workload_table(workloads: Sequence[TimedWorkload]) -> Iterator[str]:
    """Yield a line of titles and one per workload, in the task's order; nothing where there is one workload."""
    if not workloads:
        return
    rows = [("workload", "speedup", "95 % interval", "latency us", "reference us", "pairs"), *map(_row, workloads)]
    if any(one.speedup_vs_baseline is not None for one in workloads):
        extra = ["vs baseline", *(_times(one.speedup_vs_baseline) for one in workloads)]
        rows = [(*row, more) for row, more in zip(rows, extra, strict=True)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for name, *numbers in rows:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *cells])


def workload_span(workloads: Sequence[TimedWorkload]) -> str:
    """Say in a few words how far the workloads lie apart; empty where there is one."""
    if not workloads:
        return ""
    slowest = min(workloads, key=lambda one: one.speedup_vs_reference)
    fastest = max(workloads, key=lambda one: one.speedup_vs_reference)
    return (
        f"{len(workloads)} workloads: {_times(slowest.speedup_vs_reference)} ({slowest.name[:_WIDEST]}) "
        f"to {_times(fastest.speedup_vs_reference)}"
    )


def _row(one: TimedWorkload) -> tuple[str, ...]:
    interval = one.speedup_interval
    return (
        one.name[:_WIDEST],
        _times(one.speedup_vs_reference),
        f"[{interval.low:.2f}, {interval.high:.2f}]",
        f"{one.latency_us:.1f}",
        f"{one.reference_latency_us:.1f}",
        str(one.pairs),
    )


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"
