"""`ksearch compare`: several runs of one task beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.runs.folder import find_run, read_run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.compare import (
    Comparison,
    Entrant,
    Group,
    Row,
    best_words,
    compared,
    entrant_of,
    failures_of,
    fates_of,
    levels_of,
    rows_of,
    spread_of,
)
from ksearch_async.views.report.data import reached
from ksearch_async.views.terminal import put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, duration, table_lines

_RUNS = (
    Column("run"),
    Column("group"),
    Column("seed", number=True, rank=2),
    Column("best", number=True),
    Column("95 % interval", rank=1),
    Column("rounds", number=True, rank=1),
    Column("time", number=True, rank=3),
    Column("state", rank=2),
)
_GAP = 2


def compare_command(
    *runs: str,
    markdown: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Compare runs of one task: results and costs.

    Runs that differ only in their seeds form one group, shown as medians with ranges in brackets. Runs on different
    devices never share a group. A speedup is reached when the whole interval of a best kernel is at or above it. A best
    kernel counts from its confirmation, which may be some rounds after the round that found it.

    Args:
        runs: Ids or folders of runs, two or more.
        markdown: Print tables in Markdown.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"task": …, "common": {…}, "groups": [{…, "runs": [{…}]}]}`.
    """
    if markdown and as_json:
        raise refusal("--markdown and --json cannot be given together")
    comparison = compared(read_entrants(runs, runs_dir))
    if as_json:
        put_json(_as_object(comparison))
    else:
        lines = _markdown_lines(comparison) if markdown else _lines(comparison, terminal_width())
        put_lines(lines)
    return exits.FOUND


def read_entrants(runs: Sequence[str], runs_dir: Path | None) -> list[Entrant]:
    """Read the runs that are meant."""
    folders = [find_run(run, runs_dir_or_default(runs_dir)) for run in runs]
    for place, folder in enumerate(folders):
        if folder.path in [other.path for other in folders[:place]]:
            raise refusal(f"run {folder.run_id!r} is named twice")
    if len(folders) < 2:
        raise refusal("two runs or more are needed to compare", "ksearch ls lists runs; ksearch show RUN shows one")
    return [entrant_of(folder.run_id, read_run(folder)) for folder in folders]


def _lines(comparison: Comparison, width: int | None) -> Iterator[str]:
    yield f"task       {comparison.task}"
    yield from _paragraph("all", comparison.brief, width)
    for group in comparison.groups:
        yield from _paragraph(f"group {group.name}", group.told or "the same settings", width)
    yield ""
    rows = list(rows_of(comparison))
    for chosen in _pages(comparison.groups, rows, width):
        columns = [Column(""), *(Column(comparison.groups[at].name, number=True) for at in chosen)]
        yield from table_lines(columns, [[row.title, *(row.cells[at] for at in chosen)] for row in rows], width=width)
        yield ""
    cells = [_run_cells(group, entrant) for group in comparison.groups for entrant in group.entrants]
    yield from table_lines(_RUNS, cells, width=width)


def _paragraph(title: str, text: str, width: int | None) -> Iterator[str]:
    for place, line in enumerate(wrap(text, (width or 10**6) - 11) or [""]):
        yield f"{title if place == 0 else '':<11}{line}"


def _pages(groups: Sequence[Group], rows: Sequence[Row], width: int | None) -> Iterator[list[int]]:
    """Yield which groups stand beside each other: as many as fit, one at least."""
    titles = max(len(row.title) for row in rows)
    page: list[int] = []
    used = titles
    for at in range(len(groups)):
        wide = _GAP + max(len(row.cells[at]) for row in rows)
        if page and width is not None and used + wide > width:
            yield page
            page, used = [], titles
        page.append(at)
        used += wide
    yield page


def _run_cells(group: Group, entrant: Entrant) -> list[str]:
    run = entrant.run
    best, interval = best_words(run)
    totals, limit = run.totals, run.settings.budget.max_rounds
    return [
        entrant.run_id,
        group.name,
        str(entrant.seed),
        best,
        interval,
        f"{totals.rounds}/{limit}" if limit else str(totals.rounds),
        duration(totals.elapsed_s),
        totals.stopped_by or totals.standing,
    ]


def _markdown_lines(comparison: Comparison) -> Iterator[str]:
    yield f"Task `{_cell(comparison.task)}`: {_cell(comparison.brief)}."
    yield ""
    for group in comparison.groups:
        if group.told:
            yield f"- **{group.name}**: {_cell(group.told)}"
    if len(comparison.groups) > 1:
        yield ""
    names = [group.name if group.told else "all" for group in comparison.groups]
    yield _markdown_row(["", *names])
    yield "|---|" + "---:|" * len(names)
    for row in rows_of(comparison):
        yield _markdown_row([row.title, *row.cells])
    yield ""
    yield _markdown_row([column.title for column in _RUNS])
    yield "|" + "".join("---:|" if column.number else "---|" for column in _RUNS)
    for group in comparison.groups:
        yield from (_markdown_row(_run_cells(group, entrant)) for entrant in group.entrants)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Return a text that is no markup: names come from files and models."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#&" else char for char in " ".join(text.split()))


def _as_object(comparison: Comparison) -> dict[str, object]:
    levels = levels_of(comparison)
    return {
        "task": comparison.task,
        "scored": comparison.scored,
        "common": comparison.common,
        "groups": [
            {
                "name": group.name,
                "told": group.told,
                "best": spread_of([one.step.value if one.step else None for one in group.runs], missing=float("-inf")),
                "rounds_to_best": spread_of([one.step.at.rounds if one.step else None for one in group.runs]),
                "failures": {fate: fates_of(group)[fate] for fate in failures_of(comparison.groups)},
                "runs": [_run_object(entrant, levels) for entrant in group.entrants],
            }
            for group in comparison.groups
        ],
    }


def _run_object(entrant: Entrant, levels: Sequence[float]) -> dict[str, object]:
    run = entrant.run
    best, totals = run.step, run.totals
    return {
        "run": entrant.run_id,
        "seed": entrant.seed,
        "traits": entrant.traits,
        "standing": totals.standing,
        "stopped_by": totals.stopped_by,
        "used": run.place,
        "best": {"value": best.value, "interval": best.interval, "at": best.at, "mark": best.mark} if best else None,
        "reached": {f"{level:g}": reached(run, level) for level in levels},
        "fates": totals.fates,
        "calls": totals.calls,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "cost_usd": run.place.dollars,
    }
