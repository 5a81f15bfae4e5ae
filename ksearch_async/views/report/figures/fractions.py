"""Which fraction of the workloads is at least so fast (as Figure 3 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ksearch_async.views.report.data import Curve, Series, fractions_of, workloads_of
from ksearch_async.views.report.figures.ink import HIGH, SOFT, WIDE, Picture, dress, scale_speedups, shown, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pictures(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one, if there are several workloads: of one, the fraction is all or nothing."""
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
        draw=partial(_draw, [(each.label, fractions_of(each.runs)) for each in series]),
    )


def _draw(curves: Sequence[tuple[str, Curve]], figure: Figure) -> None:
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
