"""Figures over time: the best so far, and the search trace (Figure 2 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ksearch_async.runs.run import Against, Run, Tried
from ksearch_async.views.report.data import Series, band_of, curve_of
from ksearch_async.views.report.ink import (
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
    shown,
    style_of,
)
from messages.verdicts import CORRECT_FATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXES: dict[Against, tuple[str, str]] = {
    "rounds": ("best-so-far-rounds", "rounds (evaluations)"),
    "seconds": ("best-so-far-time", "wall-clock"),
    "dollars": ("best-so-far-dollars", "US dollars for models"),
}
_UNITS = (
    (2 * 86400.0, 86400.0, "days"),
    (2 * 3600.0, 3600.0, "hours"),
    (120.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)
"""Least seconds, seconds per unit, unit."""
_LABEL = 60


def best_so_far(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one figure against rounds, one against time, and one against dollars if all prices are known."""
    runs = [run for each in series for run in each.runs]
    if not any(run.steps for run in runs):
        return
    several = any(len(each.runs) > 1 for each in series)
    for against, (name, words) in _AXES.items():
        if against == "dollars" and not all(run.place.dollars for run in runs):
            continue
        told = [f"The best kernel's value as it was known, against {words}."]
        if several:
            told.append("Lines are medians over runs, bands their range, from where each run has a best.")
        told.append("A run that is over keeps its best." if len(runs) > 1 else "The dot is the run's end.")
        yield Picture(
            name=name,
            title=f"Best so far against {words}",
            caption=" ".join(told),
            size=(WIDE, HIGH),
            draw=partial(_draw_best_so_far, series, against),
        )


def _draw_best_so_far(series: Sequence[Series], against: Against, figure: Figure) -> None:
    axes = figure.subplots()
    dress(axes)
    runs = [run for each in series for run in each.runs]
    scored = runs[0].scored
    longest = max(run.place.on(against) or 0.0 for run in runs)
    unit, words = (
        next((one, name) for begins, one, name in _UNITS if longest >= begins)
        if against == "seconds"
        else (1.0, _AXES[against][1])
    )
    seen = [y for place, each in enumerate(series) for y in _draw_series(axes, each, against, place, unit)]
    scale_speedups(axes, seen, scored=scored)
    draw_levels(axes, runs)
    axes.set_xlim(0, longest / unit * 1.02 or 1)
    if against == "rounds":
        count_rounds(axes)
    axes.set_xlabel(f"wall-clock ({words})" if against == "seconds" else words)
    axes.set_ylabel("best score so far" if scored else "best speedup so far")
    if len(series) > 1 or len(runs) > 1:
        figure.legend(loc="outside upper left", ncols=1)


def _draw_series(axes: Axes, series: Series, against: Against, place: int, unit: float) -> list[float]:
    colour, dashes = style_of(place)
    label, count = shown(series.label, _LABEL), len(series.runs)
    found = [run for run in series.runs if curve_of(run, against)]
    if len(found) < count:
        label += f"; {count - len(found)} without a best"
    band = band_of(found, against)
    if band is None:
        axes.plot([], [], color=colour, label=label)
        return []
    x = [each / unit for each in band.x]
    if len(found) > 1:
        axes.fill_between(x, band.low, band.high, step="post", color=colour, alpha=0.18, linewidth=0)
    axes.plot(x, band.middle, drawstyle="steps-post", color=colour, linestyle=dashes, linewidth=1.4, label=label)
    axes.plot(x[-1:], band.middle[-1:], marker="o", markersize=3.5, color=colour)
    return [*band.low, *band.high]


_LANE = 0.16
"""Inches for each kind of failure."""
_NAMED_STEPS = 12


def search_trace(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one figure for each run with evaluations."""
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
            draw=partial(_draw_search_trace, run),
        )


def _failures(run: Run) -> dict[str, list[int]]:
    """Return the rounds of candidates without a speed, by status."""
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


def _draw_search_trace(run: Run, figure: Figure) -> None:
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
