"""`ksearch ls`: the runs of a folder, the most recently written first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.runs.folder import RunFolder, list_runs, read_run
from ksearch_async.runs.run import Best, BestScore, Run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.lines import standing
from ksearch_async.views.terminal import note, put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, rough_duration, table_lines
from messages.base import BusError
from messages.verdicts import score_text

_COLUMNS = (
    Column("run"),
    Column("task", rank=3),
    Column("state"),
    Column("rounds", number=True, rank=1),
    Column("best", number=True),
    Column("95 % interval", rank=2),
    Column("age", number=True, rank=1),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of one run."""

    run: str
    path: str
    task: str | None = None
    language: str | None = None
    device: str | None = None
    state: str
    """`running`, `paused`, `stopped` (killed), `ended`, `interrupted`, `failed`, or `damaged`."""
    stopped_by: str | None = None
    rounds: int = 0
    max_rounds: int | None = None
    best: Best | BestScore | None = None
    age_s: float
    """Seconds since the last record was written to its journal."""
    error: str = ""


def ls_command(*, runs_dir: Path | None = None, as_json: JsonFlag = False) -> int:
    """List runs, the most recently written first.

    Args:
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"runs_dir": …, "runs": [{…}, …]}`.
    """
    folder = runs_dir_or_default(runs_dir)
    if runs_dir is not None and not runs_dir.is_dir():
        raise refusal(f"no folder {str(runs_dir)!r}", "--runs-dir names the folder that runs were made in")
    now = datetime.now(UTC).timestamp()
    rows = [_row(run, now) for run in list_runs(folder)]
    if as_json:
        put_json({"runs_dir": str(folder.absolute()), "runs": rows})
    elif rows:
        put_lines(table_lines(_COLUMNS, [_cells(row) for row in rows], width=terminal_width()))
    else:
        note(f"no runs in {str(folder)!r}; start one: ksearch run rmsnorm_silu")
    for row in rows:
        if row.error:
            note(f"warning: {row.error}")
    return exits.FOUND


def _row(run: RunFolder, now: float) -> Row:
    """Read a run; one that cannot be read is listed too, so that it does not hide the others."""
    age_s = max(0.0, now - run.journal.stat().st_mtime)
    try:
        chronicle = read_run(run)
    except BusError as error:
        return Row(run=run.run_id, path=str(run.path), state="damaged", age_s=age_s, error=str(error))
    return _told(run, chronicle, age_s)


def _told(run: RunFolder, chronicle: Run, age_s: float) -> Row:
    started, state, finished = chronicle.started, chronicle.state, chronicle.finished
    return Row(
        run=run.run_id,
        path=str(run.path),
        task=started.task.name if started else None,
        language=started.description.language if started else None,
        device=started.target.device if started else None,
        state=standing(chronicle, in_use=run.in_use()),
        stopped_by=finished.stopped_by if finished else None,
        rounds=state.rounds,
        max_rounds=state.settings.budget.max_rounds if started else None,
        best=chronicle.best(str(run.best)),
        age_s=age_s,
    )


def _worth(best: Best | BestScore | None) -> tuple[str, str]:
    if best is None:
        return "-", "-"
    if isinstance(best, BestScore):
        return score_text(best.score), "-"
    low, high = best.speedup_interval
    return f"{best.speedup_vs_reference:.2f}x", f"[{low:.2f}, {high:.2f}]"


def _cells(row: Row) -> list[str]:
    return [
        row.run,
        row.task or "-",
        row.state,
        f"{row.rounds}/{row.max_rounds}" if row.max_rounds else "-",
        *_worth(row.best),
        rough_duration(row.age_s),
    ]
