"""The best so far against what it took: rounds, wall-clock or dollars; medians with the range over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ksearch_async.runs.run import Against
from ksearch_async.views.report.data import Series, band_of, curve_of
from ksearch_async.views.report.figures.ink import (
    HIGH,
    WIDE,
    Picture,
    count_rounds,
    draw_levels,
    dress,
    scale_speedups,
    shown,
    style_of,
)

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
"""From this length on, seconds per unit, unit."""
_LABEL = 60


def pictures(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one against rounds, one against time, and one against dollars where all prices are known."""
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
            draw=partial(_draw, series, against),
        )


def _draw(series: Sequence[Series], against: Against, figure: Figure) -> None:
    axes = figure.subplots()
    dress(axes)
    runs = [run for each in series for run in each.runs]
    scored = runs[0].scored
    longest = max(run.place.on(against) or 0.0 for run in runs)
    unit, words = _unit(longest) if against == "seconds" else (1.0, _AXES[against][1])
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


def _unit(longest_s: float) -> tuple[float, str]:
    return next((unit, words) for begins, unit, words in _UNITS if longest_s >= begins)


def _draw_series(axes: Axes, series: Series, against: Against, place: int, unit: float) -> list[float]:
    """Draw one, and return the values that are to be seen."""
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
