"""`ksearch show`: a run's summary and its tree, from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import put, put_json, terminal_width
from ksearch_async.drawing import tree_lines
from ksearch_async.narrate import duration, fates_line, faults_line, result_lines, standing, state_line
from ksearch_async.runs import RunFolder, find_run, open_chronicle, runs_dir_or_default


def show_command(
    run: str = "latest",
    /,
    *,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Show a run: state, best kernel, tree, counts by fate.

    Args:
        run: A run's id, its folder, or `latest`.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    chronicle = open_chronicle(folder)
    if as_json:
        put_json(_summary(folder, chronicle))
    else:
        put("\n".join(_lines(folder, chronicle)))
    return exits.FOUND


def _lines(folder: RunFolder, chronicle: Chronicle) -> Iterator[str]:
    state, started = chronicle.state, chronicle.started
    yield f"run        {folder.run_id}"
    if started is not None:
        yield f"task       {started.task.name}, {started.description.language}, {started.target.device}"
    yield f"state      {state_line(chronicle, in_use=folder.in_use())}"
    yield f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}"
    yield f"fates      {fates_line(chronicle)}"
    yield f"model      {state.usage.calls} calls, {state.usage.tokens:,} tokens"
    if chronicle.faults:
        yield f"endpoint   failed tries: {faults_line(chronicle)}"
    yield from result_lines(chronicle, str(folder.best), str(folder.candidates))
    if state.nodes:
        yield ""
        yield from tree_lines(state, width=terminal_width())


def _summary(folder: RunFolder, chronicle: Chronicle) -> dict[str, object]:
    state, started, finished = chronicle.state, chronicle.started, chronicle.finished
    return {
        "run": folder.run_id,
        "path": str(folder.path),
        "task": started.task.name if started else None,
        "device": started.target.device if started else None,
        "state": standing(chronicle, in_use=folder.in_use()),
        "stopped_by": finished.stopped_by if finished else None,
        "rounds": state.rounds,
        "max_rounds": state.settings.budget.max_rounds,
        "elapsed_s": chronicle.elapsed_s,
        "fates": dict(chronicle.fates),
        "faults": dict(chronicle.faults),
        "usage": state.usage,
        "best": chronicle.best(str(folder.best)),
        "untimed": chronicle.untimed(),
        "nodes": sorted(state.nodes.values(), key=lambda node: int(node.node_id[1:])),
    }
