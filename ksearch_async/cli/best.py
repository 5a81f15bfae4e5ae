"""`ksearch best`: where a run's best kernel lies and how fast it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.evaluation.candidates import written_candidate
from ksearch_async.runs.folder import find_run, read_run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.lines import result_lines
from ksearch_async.views.terminal import put_json, put_lines, put_raw


def best_command(
    run: str = "latest",
    /,
    *,
    source: Annotated[bool, Parameter(negative="")] = False,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Show the path and the speed of a run's best kernel.

    Args:
        run: A run's id, its folder, or `latest`.
        source: Print the kernel's main file instead.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"run": …, "best": {…} | null, "untimed": […]}`.
    """
    if source and as_json:
        raise refusal("--source and --json cannot be given together")
    folder = find_run(run, runs_dir_or_default(runs_dir))
    chronicle = read_run(folder)
    best = chronicle.best(str(folder.best))
    if as_json:
        put_json({"run": folder.run_id, "best": best, "untimed": chronicle.untimed()})
    elif source and best is not None:
        put_raw(written_candidate(folder.journal, best.candidate_id).files[0].text.rstrip("\n"))
    else:
        put_lines(result_lines(chronicle, str(folder.best), str(folder.candidates)))
    return exits.FOUND if best is not None else exits.NOT_FOUND
