"""Draws: which figures there are of given runs, and each as the bytes of a file.

The same data give the same bytes with the same matplotlib: its own font and defaults (a user's matplotlibrc counts for
nothing), identifiers by content, no dates and no versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from types import ModuleType
from typing import Literal, TypeAlias

from ksearch_async.refusals import refusal
from ksearch_async.report.data import Series
from ksearch_async.report.figures import best_so_far, fractions, search_trace, tree, workloads
from ksearch_async.report.figures.ink import INK, PAPER, SERIES, SOFT, Picture

Form: TypeAlias = Literal["svg", "png"]

OF_ALL_RUNS = (best_so_far, workloads, fractions)
OF_EACH_RUN = (search_trace, tree)
FIGURES = (search_trace, best_so_far, workloads, fractions, tree)
DOTS_PER_INCH = 200
_STYLE = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
    "axes.titlecolor": INK,
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
    "savefig.facecolor": PAPER,
    "svg.fonttype": "path",  # looks the same wherever it is opened
    "svg.hashsalt": "ksearch",
    "text.color": INK,
    "text.parse_math": False,  # a model's title may hold a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
}
_METADATA: dict[Form, dict[str, None]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def require_plotting() -> None:
    """Refuse to go on where nothing can be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise refusal("figures are drawn by matplotlib, which is not installed", 'pip install "ksearch-async[plot]"')


def pictures_of(series: Sequence[Series], figures: Sequence[ModuleType] = FIGURES) -> Iterator[Picture]:
    """Yield what can be drawn of runs of one task, the most telling first."""
    for figure in figures:
        yield from figure.pictures(series)


def rendered(picture: Picture, form: Form) -> bytes:
    """Draw a picture and return its file."""
    from matplotlib import style  # noqa: PLC0415 - only when drawing
    from matplotlib.figure import Figure  # noqa: PLC0415

    buffer = BytesIO()
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=picture.size, layout="constrained")
        picture.draw(figure)
        figure.savefig(buffer, format=form, dpi=DOTS_PER_INCH, metadata=_METADATA[form])
    return buffer.getvalue()
