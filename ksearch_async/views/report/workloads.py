"""The best kernels' speed on each workload, and the share of workloads above a speedup (the paper's Figure 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ksearch_async.views.report.data import Curve, Series, Workload, baseline_of, fractions_of, workloads_of
from ksearch_async.views.report.ink import FAINT, HIGH, INK, SOFT, WIDE, Picture, dress, scale_speedups, shown, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR = 0.16
"""Inches."""
_FRAME = 0.9
_NAME = 36
_FILLED = 0.8
"""Share of a workload's row that bars fill."""
_MOST = 40
"""Most workloads that are readable in one figure. The slowest are shown, where work is left."""


class _Bars(msgspec.Struct, frozen=True):
    label: str
    colour: str
    lengths: dict[str, tuple[float, float, float]]
    """By workload: value, and both ends of its whisker."""


def workloads(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one figure, if any run has a timed kernel."""
    found = [workloads_of(each.runs) for each in series]
    names = list(dict.fromkeys(one.name for each in found for one in each))
    if not names:
        return
    slowest = {name: min(one.speedup for each in found for one in each if one.name == name) for name in names}
    kept = set(sorted(names, key=lambda name: (slowest[name], name))[:_MOST])
    left_out = f" The {len(kept)} slowest of {len(names)} are shown." if len(kept) < len(names) else ""
    several = any(len(each.runs) > 1 for each in series)
    whiskers = "the range over runs" if several else "95 % intervals"
    shown_names = [name for name in names if name in kept]
    bars = _bars_of(series, found)
    yield Picture(
        name="workloads",
        title="Speedup by workload",
        caption=f"Speedup of the best kernel over the reference, which is 1x. Whiskers are {whiskers}.{left_out}",
        size=(WIDE, _FRAME + _BAR * (len(bars) + 1) * len(shown_names) + 0.2 * (len(bars) > 3)),
        draw=partial(_draw_workloads, bars, shown_names),
    )


def _bars_of(series: Sequence[Series], found: Sequence[Sequence[Workload]]) -> list[_Bars]:
    everything = [one for each in found for one in each]
    bars = [_Bars("reference", FAINT, {one.name: (1.0, 1.0, 1.0) for one in everything})]
    baselines = {one.name: (one.baseline, one.baseline, one.baseline) for one in everything if one.baseline}
    if baselines:
        names = {beside[0] for each in series for run in each.runs if (beside := baseline_of(run))}
        bars.append(_Bars(f"baseline ({', '.join(sorted(names))})", SOFT, baselines))
    for place, (each, timed) in enumerate(zip(series, found, strict=True)):
        label = each.label if len(series) > 1 else "best kernel" if len(each.runs) == 1 else "best kernels"
        lengths = {one.name: (one.speedup, one.low, one.high) for one in timed}
        bars.append(_Bars(label, style_of(place)[0], lengths))
    return bars


def _draw_workloads(bars: Sequence[_Bars], names: Sequence[str], figure: Figure) -> None:
    axes = figure.subplots()
    dress(axes)
    axes.grid(visible=False, axis="y")
    height = _FILLED / len(bars)
    for place, each in enumerate(bars):
        known = [at for at, name in enumerate(names) if name in each.lengths]
        y = [at - _FILLED / 2 + height * (place + 0.5) for at in known]
        lengths = [each.lengths[names[at]] for at in known]
        x = [middle for middle, _, _ in lengths]
        axes.barh(y, x, height=0.9 * height, color=each.colour, label=shown(each.label, 60))
        whiskers = [[middle - low for middle, low, _ in lengths], [high - middle for middle, _, high in lengths]]
        if any(map(any, whiskers)):
            axes.errorbar(x, y, xerr=whiskers, fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
        for down, (middle, _, high) in zip(y, lengths, strict=True):
            place_of_words = (max(middle, high), down)
            axes.annotate(
                f"{middle:.2f}x", place_of_words, (4, 0), textcoords="offset points", va="center", fontsize="small"
            )
    axes.set_yticks(range(len(names)), [shown(name, _NAME) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_xlabel("speedup over the reference")
    figure.legend(loc="outside upper left", ncols=3 if len(bars) <= 3 else 1)


def fractions(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one figure, if there are several workloads; with one the fraction is 0 or 1."""
    if max((len(workloads_of(each.runs)) for each in series), default=0) < 2:
        return
    several = any(len(each.runs) > 1 for each in series)
    yield Picture(
        name="fractions",
        title="Fraction of workloads above a speedup",
        caption=(
            "For each speedup over the reference, which fraction of the workloads the best kernel is faster on"
            + (", all runs of a group counted together." if several else ".")
        ),
        size=(WIDE, HIGH),
        draw=partial(_draw_fractions, [(each.label, fractions_of(each.runs)) for each in series]),
    )


def _draw_fractions(curves: Sequence[tuple[str, Curve]], figure: Figure) -> None:
    axes = figure.subplots()
    dress(axes)
    speedups = [1.0, *(speedup for _, curve in curves for speedup, _ in curve)]
    scale_speedups(axes, speedups, scored=False, along="x")
    left, right = min(speedups) / 1.1, max(speedups) * 1.05
    for place, (label, curve) in enumerate(curves):
        colour, dashes = style_of(place)
        x = [left, *(speedup for speedup, _ in curve), right]
        y = [1.0, *(fraction for _, fraction in curve), 0.0] if curve else [0.0, 0.0]
        words = shown(label, 60) if len(curves) > 1 else None
        axes.plot(x, y, drawstyle="steps-post", color=colour, linestyle=dashes, linewidth=1.4, label=words)
    axes.axvline(1.0, color=SOFT, linewidth=0.8, linestyle="--")
    axes.set_xlim(left, right)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xlabel("speedup over the reference")
    axes.set_ylabel("workloads that are faster")
    if len(curves) > 1:
        figure.legend(loc="outside upper left", ncols=1)
