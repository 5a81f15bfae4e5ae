"""Figures of runs: draws each as a file, or as part of a page in light and dark colours.

The same data give the same bytes with the same matplotlib: its own font and defaults (a user's matplotlibrc is
ignored), identifiers derived from the content, no dates and no versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Literal, TypeAlias

from ksearch_async.errors import refusal
from ksearch_async.views.report import ink
from ksearch_async.views.report.curves import best_so_far, search_trace
from ksearch_async.views.report.data import Series
from ksearch_async.views.report.ink import INK, PAPER, SERIES, SOFT, Picture
from ksearch_async.views.report.markup import Markup, joined, tag, trusted
from ksearch_async.views.report.search_tree import tree
from ksearch_async.views.report.workloads import fractions, workloads

_VARIABLES = {
    ink.INK: "--ink",
    ink.SOFT: "--soft",
    ink.FAINT: "--faint",
    ink.PAPER: "--paper",
    ink.BLUE: "--blue",
    ink.ORANGE: "--orange",
    ink.GREEN: "--green",
    ink.PURPLE: "--purple",
    ink.RED: "--red",
    ink.SKY: "--sky",
}
"""CSS variable for each colour of a figure; `page.css` defines them for light and dark."""
_COLOUR = re.compile("|".join(_VARIABLES))
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_IDENTIFIER = re.compile(r'(\bid="|href="#|url\(#)')
_HEAD = re.compile(r"\A.*?<svg [^>]*?viewBox=\"([0-9. ]+)\"[^>]*>\s*<metadata>.*?</metadata>", re.DOTALL)


def inlined(picture: ink.Picture, number: int) -> Markup:
    """Return a picture with its caption."""
    return tag(
        "figure",
        trusted(_as_part(rendered(picture, "svg").decode(), picture.title, number)),
        tag("figcaption", tag("b", f"Figure {number}. {picture.title}."), " ", picture.caption),
    )


def _as_part(svg: str, title: str, number: int) -> str:
    """Return a drawn figure without its prologue. It contains only shapes: texts are drawn as paths."""
    body = _HEAD.sub("", _COMMENT.sub("", svg), count=1)
    view = _HEAD.match(svg)
    assert view is not None, "matplotlib writes a viewBox and metadata"  # noqa: S101 - our own file
    body = _IDENTIFIER.sub(rf"\1f{number}-", body)
    body = _COLOUR.sub(lambda found: f"var({_VARIABLES[found.group()]})", body)
    named = joined(title).html
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{named}" viewBox="{view.group(1)}">{body}'
    )


Form: TypeAlias = Literal["svg", "png"]

Drawn: TypeAlias = Callable[[Sequence[Series]], Iterator[Picture]]
"""Yields the pictures that can be drawn for some runs."""

OF_ALL_RUNS: tuple[Drawn, ...] = (best_so_far, workloads, fractions)
OF_EACH_RUN: tuple[Drawn, ...] = (search_trace, tree)
FIGURES: tuple[Drawn, ...] = (search_trace, best_so_far, workloads, fractions, tree)
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
    """Check that figures can be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise refusal("figures are drawn by matplotlib, which is not installed", 'pip install "ksearch-async[plot]"')


def pictures_of(series: Sequence[Series], figures: Sequence[Drawn] = FIGURES) -> Iterator[Picture]:
    """Yield the figures that can be drawn for runs of one task, the most important first."""
    for figure in figures:
        yield from figure(series)


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
