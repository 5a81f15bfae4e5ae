"""The search run: each attempt by its round with its fate, the best so far as steps (Figure 2 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ksearch_async.runs.run import Run, Tried
from ksearch_async.views.report.data import Series
from ksearch_async.views.report.figures.ink import (
    FATES,
    HIGH,
    INK,
    OTHER_FATE,
    WIDE,
    Picture,
    count_rounds,
    draw_levels,
    dress,
    scale_speedups,
)
from messages.verdicts import CORRECT_FATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LANE = 0.16
"""Inches per kind of failure."""
_NAMED_STEPS = 12


def pictures(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one for each run in which something was evaluated."""
    runs = [run for each in series for run in each.runs]
    for number, run in enumerate(runs, start=1):
        if not any(tried.fact.round for tried in run.tried):
            continue
        lanes = len(_failures(run))
        yield Picture(
            name="search-trace" if len(runs) == 1 else f"search-trace-{number}",
            title="Search trace" if len(runs) == 1 else f"Search trace: {run.state.run_id}",
            caption=(
                "Every evaluation by its round: correct candidates by their speed, failures in the lanes below. The "
                "line is the best so far, with 95 % intervals; a candidate counts from its confirmation on. Rings "
                "are those that became the best."
            ),
            size=(WIDE, HIGH + _LANE * lanes),
            draw=partial(_draw, run),
        )


def _failures(run: Run) -> dict[str, list[int]]:
    """Return the rounds by fate, of what has no speed."""
    found: dict[str, list[int]] = {}
    for tried in run.tried:
        if tried.fact.round and _value(run, tried) is None:
            found.setdefault(tried.fact.fate, []).append(tried.fact.round)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _value(run: Run, tried: Tried) -> float | None:
    fact = tried.fact
    if fact.credit is None or fact.fate not in CORRECT_FATES:
        return None
    return fact.credit if run.scored else fact.speedup


def _draw(run: Run, figure: Figure) -> None:
    failures = _failures(run)
    if failures:
        ratios = [HIGH - 1.0, max(0.25, _LANE * len(failures))]
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        _draw_failures(below, failures)
    else:
        above = below = figure.subplots()
    dress(above)
    _draw_attempts(above, run)
    _draw_best(above, run)
    draw_levels(above, [run])
    last = max([run.state.rounds, *(tried.fact.round for tried in run.tried)])
    above.set_xlim(0, last + 1)
    above.set_ylabel("score" if run.scored else "speedup over the reference")
    count_rounds(below)
    below.set_xlabel("round (evaluations)")
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=4)


def _draw_attempts(axes: Axes, run: Run) -> None:
    points: dict[str, list[tuple[int, float]]] = {}
    for tried in run.tried:
        value = _value(run, tried)
        if tried.fact.round and value is not None:
            points.setdefault(tried.fact.fate, []).append((tried.fact.round, value))
    for fate, found in sorted(points.items()):
        mark, colour = FATES.get(fate, OTHER_FATE)
        x, y = zip(*found, strict=True)
        axes.scatter(x, y, s=16, marker=mark, color=colour, linewidths=0, label=fate.replace("_", " "), zorder=3)
    values = [y for found in points.values() for _, y in found]
    scale_speedups(axes, [*values, *(step.value for step in run.steps)], scored=run.scored)


def _draw_best(axes: Axes, run: Run) -> None:
    steps = run.steps
    if not steps:
        return
    x = [step.at.rounds for step in steps] + [run.state.rounds]
    y = [step.value for step in steps] + [steps[-1].value]
    axes.plot(x, y, drawstyle="steps-post", color=INK, linewidth=1.2, label="best so far", zorder=4)
    axes.plot(x[:-1], y[:-1], linestyle="none", marker="o", markersize=2.5, color=INK, zorder=4)
    if not run.scored:
        low = [step.value - step.interval[0] for step in steps]
        high = [step.interval[1] - step.value for step in steps]
        axes.errorbar(x[:-1], y[:-1], yerr=[low, high], fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5, zorder=4)
    rings = [(step.mark.round, step.mark.screen_speedup or step.value) for step in steps]
    ring_x, ring_y = zip(*rings, strict=True)
    axes.scatter(ring_x, ring_y, s=44, facecolors="none", edgecolors=INK, linewidths=0.8, zorder=5)
    for step in steps if len(steps) <= _NAMED_STEPS else steps[-1:]:
        axes.annotate(
            step.mark.node_id,
            xy=(step.at.rounds, step.value),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize="small",
            zorder=6,
        )


def _draw_failures(axes: Axes, failures: dict[str, list[int]]) -> None:
    dress(axes)
    axes.grid(visible=False, axis="y")
    for lane, (fate, rounds) in enumerate(failures.items()):
        mark, colour = FATES.get(fate, OTHER_FATE)
        axes.scatter(rounds, [lane] * len(rounds), s=12, marker=mark, color=colour, linewidths=0.8)
    names = [f"{fate.replace('_', ' ')} ({len(rounds)})" for fate, rounds in failures.items()]
    axes.set_yticks(range(len(failures)), names)
    axes.set_ylim(len(failures) - 0.4, -0.6)
