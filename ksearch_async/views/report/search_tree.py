"""The search tree: a row for each action, indented below its parent, with its result as a bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from actors.planner.core.state import Node, in_order
from ksearch_async.runs.run import Run
from ksearch_async.views.report.data import Series, start_of
from ksearch_async.views.report.ink import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    PAPER,
    RED,
    SOFT,
    WIDE,
    Picture,
    dress,
    scale_speedups,
    shown,
)
from ksearch_async.views.tree_layout import Row, kept, path_to_best, rows_of
from messages.base import ROOT
from messages.verdicts import NO_FAILURES, worth_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ROW, _FRAME = 0.19, 0.75
"""Inches."""
_MOST = 80
"""Most rows that are readable in one figure."""
_INDENT, _CHARACTER, _BOLD = 0.14, 0.068, 0.077
"""Inches of a level, and about those of a letter."""
_SHARE = 0.72
"""Share of the width for the tree; bars have the rest."""
_DEEPEST = 14
"""Most levels that are indented."""


def tree(series: Sequence[Series]) -> Iterator[Picture]:
    """Yield one figure for each run that has actions."""
    runs = [run for each in series for run in each.runs]
    for number, run in enumerate(runs, start=1):
        if len(run.state.nodes) < 2:
            continue
        lines = rows_shown(run)
        left_out = f" {len(run.state.nodes) - len(lines)} of {len(run.state.nodes)} are left out." * (
            len(lines) < len(run.state.nodes)
        )
        yield Picture(
            name="tree" if len(runs) == 1 else f"tree-{number}",
            title="Search tree" if len(runs) == 1 else f"Search tree: {run.state.run_id}",
            caption=(
                "Every action below the one that it builds on, and what the best kernel found for it is worth. The "
                "way to the best kernel is orange; red has no correct kernel, grey led to nothing, hollow was not "
                "tried."
                f"{left_out}"
            ),
            size=(WIDE, _FRAME + _ROW * len(lines)),
            draw=partial(_draw, run, lines),
        )


def rows_shown(run: Run) -> list[Row]:
    """Return the rows; of a large tree the best, those with most work, and the nodes above them."""
    state = run.state
    if len(state.nodes) <= _MOST:
        return rows_of(state)
    way = set(path_to_best(state))
    return rows_of(
        state, shown=kept(state, sorted(in_order(state.nodes), key=lambda node: _rank(node, way)), _MOST - 1)
    )


def _rank(node: Node, way: set[str]) -> tuple[bool, float, int, int]:
    worth = node.best.credit if node.best else None
    return node.node_id not in way, -worth if worth is not None else 0.0, -node.rounds, node.depth


def _draw(run: Run, lines: Sequence[Row], figure: Figure) -> None:
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[_SHARE, 1 - _SHARE])
    wide = WIDE * _SHARE
    left.set_xlim(0, wide)
    left.set_ylim(len(lines) - 0.5, -0.5)
    left.set_axis_off()
    way = {*path_to_best(run.state), ROOT}
    x = [0.1 + _INDENT * min(line.node.depth, _DEEPEST) for line in lines]
    for row, line in enumerate(lines):
        _draw_edge(left, x, row, line, way)
        colour, is_filled = _colour(line.node, way)
        left.scatter(
            [x[row]],
            [row],
            s=22,
            facecolors=colour if is_filled else PAPER,
            edgecolors=colour,
            linewidths=0.9,
            zorder=3,
        )
        is_best = row > 0 and run.step is not None and line.node.node_id == run.step.mark.node_id
        room = int((wide - x[row] - 0.15) / (_BOLD if is_best else _CHARACTER))
        left.text(
            x[row] + 0.12,
            row,
            shown(_words(run, line), room),
            va="center",
            fontweight="bold" if is_best else "normal",
            color=SOFT if line.node.state == "pruned" else INK,
            in_layout=False,
        )
    _draw_bars(right, run, lines, way)


def _draw_edge(axes: Axes, x: Sequence[float], row: int, line: Row, way: set[str]) -> None:
    if line.parent is None:
        return
    leads = line.node.node_id in way
    axes.plot(
        [x[line.parent], x[line.parent], x[row]],
        [line.parent, row, row],
        color=ORANGE if leads else FAINT,
        linewidth=1.4 if leads else 0.9,
        zorder=2 if leads else 1,
    )


def _draw_bars(axes: Axes, run: Run, lines: Sequence[Row], way: set[str]) -> None:
    dress(axes)
    axes.grid(visible=False, axis="y")
    axes.tick_params(left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.spines["bottom"].set_visible(False)
    known = [(row, line.node, _value(run, line.node)) for row, line in enumerate(lines)]
    found = [(row, value, _colour(node, way)[0]) for row, node, value in known if value is not None]
    if not found:
        axes.set_axis_off()
        return
    values = [value for _, value, _ in found]
    scale_speedups(axes, [*values, start_of(run) or 1.0], scored=run.scored, along="x")
    axes.scatter(
        values, [row for row, _, _ in found], s=18, c=[colour for _, _, colour in found], linewidths=0, zorder=3
    )
    if axes.get_xscale() == "linear":
        axes.locator_params(axis="x", nbins=4)
    if (start := start_of(run)) is not None:
        axes.axvline(start, color=SOFT, linewidth=0.8, linestyle="--")
        axes.hlines([row for row, _, _ in found], start, values, colors=[c for _, _, c in found], linewidth=1.2)
    axes.margins(x=0.08)
    axes.set_xlabel("score" if run.scored else "speedup over the reference")


def _value(run: Run, node: Node) -> float | None:
    """Return the worth of an action. The best's counts at once, others' when their branch ends."""
    if run.step is not None and node.node_id == run.step.mark.node_id:
        return run.step.value
    if node.best is None:
        return None
    return node.best.credit if node.best.speedup is None else node.best.speedup


def _colour(node: Node, way: set[str]) -> tuple[str, bool]:
    if node.node_id in way:
        return ORANGE, True
    if node.best is not None:
        return BLUE, True
    if any(count for fate, count in node.fates if fate not in NO_FAILURES):
        return RED, True
    return SOFT, bool(node.fates) or node.state == "pruned"


def _words(run: Run, line: Row) -> str:
    node = line.node
    if node.node_id == ROOT:
        return "initial program" if run.scored else "reference"
    best, incumbent = node.best, run.step.mark if run.step else None
    worth = [worth_text(best.credit, best.speedup, is_least=best.is_least)] if best else []
    if incumbent is not None and node.node_id == incumbent.node_id:
        worth = [worth_text(incumbent.credit, incumbent.speedup)]
    hidden = [f"+{line.hidden} below"] if line.hidden else []
    return " · ".join([node.node_id, *worth, *hidden, node.title])
