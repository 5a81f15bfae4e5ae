"""Lays out what the live view shows, as lines that fit a terminal. Knows no terminal: sizes in, styled lines out.

Where a terminal is wide the figures stand beside the tree, each in as many lines as there is room for; elsewhere they
stand above it, each in one line, and where rows are few only those that say most.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from rich.text import Text

from ksearch_async.cli.branches import branch_lines
from ksearch_async.cli.figures import (
    Figure,
    best,
    curve,
    devices,
    fates,
    flight,
    footer,
    header,
    latest,
    model,
    nodes,
    rounds,
)
from ksearch_async.cli.moment import Moment
from ksearch_async.progress import Progress

_FEWEST_TREE_ROWS = 3
_TWO_COLUMNS = 119
"""A terminal of 120: its last column stays free."""
_FEWEST_ROWS_BESIDE = 14
_ROOMY_ROWS = 32
"""From so many on there are empty lines between figures."""
_FIGURES_WIDTH = (52, 66)
_RULE = " │ "

_FIGURES: tuple[Figure, ...] = (rounds, best, curve, flight, devices, model, fates, latest)
_BY_WEIGHT: tuple[object, ...] = (rounds, best, flight, header, model, nodes, fates, devices, curve, footer)
"""What stays where rows are few: the first ones."""
_GROWN: tuple[tuple[Figure, int], ...] = (
    (best, 4),
    (devices, 3),
    (model, 3),
    (curve, 7),
    (fates, 8),
    (devices, 9),
    (latest, 6),
    (curve, 9),
    (latest, 24),
)
"""Which figures get more lines where there is room for them, and up to how many: the first ones first."""


def frame_lines(progress: Progress, *, now: datetime, width: int, rows: int) -> list[Text]:
    """Return at most `rows` lines of at most `width` columns: figures, and as much of the tree as fits."""
    moment = Moment(progress=progress, now=now, width=width, in_flight=progress.in_flight(now))
    is_wide = width >= _TWO_COLUMNS and rows >= _FEWEST_ROWS_BESIDE
    lines = _beside(moment, rows) if is_wide else _stacked(moment, rows)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _stacked(moment: Moment, rows: int) -> list[Text]:
    """Put the figures above the tree."""
    kept = _BY_WEIGHT[: max(1, rows - _FEWEST_TREE_ROWS)]
    above = [header(moment)] if header in kept else []
    above += [line for figure in _FIGURES if figure in kept for line in figure(moment, 1)]
    tree = branch_lines(moment, rows - len(above) - (nodes in kept) - (footer in kept))
    title = [nodes(moment, len(tree))] if nodes in kept else []
    return [*above, *title, *tree, *([footer(moment)] if footer in kept else [])]


def _beside(moment: Moment, rows: int) -> list[Text]:
    """Put the figures on the left of the tree."""
    fewest, most = _FIGURES_WIDTH
    left = min(most, max(fewest, 2 * moment.width // 5))
    right = moment.width - left - len(_RULE)
    tree = branch_lines(msgspec.structs.replace(moment, width=right, is_wide=True), rows - 3)
    tree = [nodes(moment, len(tree)), *tree]
    figures = _figure_lines(msgspec.structs.replace(moment, width=left, is_wide=True), rows - 2)
    lines = [header(moment)]
    for at in range(max(len(figures), len(tree))):
        line = figures[at] if at < len(figures) else Text("")
        line.truncate(left, overflow="ellipsis", pad=True)
        lines.append(Text.assemble(line, (_RULE, "dim"), tree[at] if at < len(tree) else ""))
    return [*lines, footer(moment)]


def _figure_lines(moment: Moment, rows: int) -> list[Text]:
    """Return the figures, each in as many lines as there is room for."""
    drawn = {figure: figure(moment, 1) for figure in _FIGURES if figure is not latest}
    between = len(drawn) if rows >= _ROOMY_ROWS else 0
    for figure, most in _GROWN:
        known = drawn.get(figure, [])
        spare = rows - between - sum(map(len, drawn.values()))
        if spare > 0:
            drawn[figure] = figure(moment, min(most, len(known) + spare))
    return _spaced([drawn[figure] for figure in _FIGURES if drawn.get(figure)], rows)


def _spaced(groups: Sequence[Sequence[Text]], rows: int) -> list[Text]:
    """Put an empty line between groups if there is room for all of them."""
    is_roomy = sum(map(len, groups)) + len(groups) - 1 <= rows
    lines: list[Text] = []
    for group in groups:
        lines += [*([Text("")] if lines and is_roomy else []), *group]
    return lines
