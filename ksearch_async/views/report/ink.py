"""Shared by all figures: colours, marks, sizes, levels, and drawing of untrusted texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from evaluators.process.printed import printable
from ksearch_async.runs.run import Run
from ksearch_async.views.report.data import baseline_of, roofline_of, start_of
from ksearch_async.views.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Draw: TypeAlias = "Callable[[Figure], None]"

INK, SOFT, FAINT, PAPER = "#1f2328", "#6e7781", "#d0d7de", "#ffffff"
"""Colours of text and axes; of less important parts; of the grid; of the background."""
BLUE, ORANGE, GREEN, PURPLE, RED, SKY = "#0072b2", "#e69f00", "#009e73", "#aa4499", "#d55e00", "#56b4e9"
"""Okabe and Ito's colours, which people with red-green colour blindness can tell apart (purple by Tol)."""
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
DASHES: tuple[str, ...] = ("-", "--", "-.", ":")
"""Line styles of series beyond the colours, and for print without colour."""

FATES: dict[str, tuple[str, str]] = {
    "measured": ("o", BLUE),
    "scored": ("o", BLUE),
    "outpaced": ("v", SKY),
    "unstable": ("D", PURPLE),
    "wrong": ("x", RED),
    "did_not_build": ("s", RED),
    "crashed": ("X", RED),
    "timed_out": ("P", RED),
    "rejected": ("^", RED),
    "quarantined": ("d", RED),
}
"""Mark and colour of each status; the marks differ without colour, too."""
OTHER_FATE = ("*", SOFT)

WIDE, HIGH = 6.4, 3.6
"""Inches: width and height that fit a column and a half of a paper."""
_NAME_GAP = 0.045
"""Height of a line of small text, as a share of the axis' height."""
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Ticks of a logarithmic axis."""
_SPREAD = 6.0
"""Ratio of largest to smallest speedup from which on the axis is logarithmic."""


_FAR = 3.0
"""Largest factor by which a line may be above the best; further ones would squeeze everything else."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that can be drawn."""

    name: str
    """Name of its file, without suffix."""
    title: str
    caption: str
    """A sentence or two for people who read only this."""
    size: tuple[float, float]
    """Inches: width, height."""
    draw: Draw


def style_of(place: int) -> tuple[str, str]:
    """Return colour and line style of the n-th series."""
    return SERIES[place % len(SERIES)], DASHES[place // len(SERIES) % len(DASHES)]


def shown(text: str, width: int) -> str:
    """Return an untrusted text (a title, a name) in a drawable form: one line, of characters that the font has.

    Characters that the font cannot draw, direction marks and control characters become a question mark in a box.
    """
    from matplotlib.font_manager import findfont, get_font  # noqa: PLC0415 - only when drawing

    font = get_font(findfont("DejaVu Sans"))
    line = printable(shortened(text, width))
    return "".join(char if font.get_char_index(ord(char)) else "\N{REPLACEMENT CHARACTER}" for char in line)


def dress(axes: Axes) -> None:
    """Remove distracting parts: two sides of the frame, strong lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, width=0.6)
    axes.grid(visible=True, color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def count_rounds(axes: Axes) -> None:
    """Let the horizontal axis count whole rounds."""
    axes.locator_params(axis="x", integer=True)


def scale_speedups(axes: Axes, values: Iterable[float], *, scored: bool, along: str = "y") -> None:
    """Choose the axis of speedups: logarithmic for a wide range, with round ticks."""
    seen = [value for value in values if value > 0]
    if scored or not seen:
        return
    axis = axes.yaxis if along == "y" else axes.xaxis
    if max(seen) / min(seen) >= _SPREAD:
        (axes.set_yscale if along == "y" else axes.set_xscale)("log")
        ticks = [tick for tick in _TICKS if min(seen) / 1.5 <= tick <= max(seen) * 1.5]
        axis.set_ticks(ticks)
        axis.set_ticks([], minor=True)
    axis.set_major_formatter(lambda value, _: f"{value:g}x")


class Level(msgspec.Struct, frozen=True):
    """A horizontal line with a name, for comparison with speedups."""

    value: float
    words: str
    dashes: str = "--"


def draw_levels(axes: Axes, runs: Sequence[Run]) -> None:
    """Draw comparison values as horizontal lines with their names at the right edge.

    Names are stacked where they would overlap. Must be called last, since it fixes the axis.
    """
    levels = list(_levels(runs))
    for level in levels:
        axes.axhline(level.value, color=SOFT, linewidth=0.8, linestyle=level.dashes, zorder=1)
    axes.set_ylim(axes.get_ylim())
    to_share = (axes.transScale + axes.transLimits).transform
    lowest = -inf
    for level in sorted(levels, key=lambda level: level.value):
        share = max(float(to_share((0.0, level.value))[1]), lowest + _NAME_GAP)
        lowest = share
        axes.annotate(
            level.words,
            xy=(1.0, share),
            xycoords="axes fraction",
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color=SOFT,
            annotation_clip=False,
        )


def _levels(runs: Sequence[Run]) -> Iterator[Level]:
    starts = {start for run in runs if (start := start_of(run)) is not None}
    if len(starts) == 1:
        yield Level(starts.pop(), "initial program" if runs[0].scored else "reference")
    if len(runs) == 1 and (baseline := baseline_of(runs[0])):
        yield Level(baseline[1], shown(baseline[0], 24), ":")
    best = max((run.step.value for run in runs if run.step), default=1.0)
    devices = {run.started.target.device for run in runs if run.started}
    if len(devices) == 1 and (bound := roofline_of(runs[0])) and bound <= _FAR * best:
        yield Level(bound, "roofline", "-.")
