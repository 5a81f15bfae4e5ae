"""`ksearch tree`: what was tried, what came of it, and what leads to the best kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from actors.planner.core.tree import ancestors
from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json, terminal_width
from ksearch_async.drawing import tree_lines
from ksearch_async.runs import RunFolder, find_run, open_chronicle, runs_dir_or_default
from messages.base import ROOT

_BEST, _ABOVE = "★ the best kernel", "☆ what it was built on"


def tree_command(
    run: str = "latest",
    /,
    *,
    depth: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Draw a run's tree: each action's best result, state, V, and how its attempts failed.

    Args:
        run: A run's id, its folder, or `latest`.
        depth: Levels below the root to draw; what lies deeper is counted.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: the nodes, and the path to the best.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    chronicle = open_chronicle(folder)
    state = chronicle.state
    if as_json:
        put_json(_as_object(folder, chronicle, depth))
        return exits.FOUND
    for line in tree_lines(state, width=terminal_width(), depth=depth):
        put(line)
    if not state.nodes:
        note(f"run {folder.run_id} has no tree yet: its planner has not answered")
    elif state.incumbent is not None:
        note(_BEST if state.node(state.incumbent.node_id).depth == 1 else f"{_BEST}  {_ABOVE}")
    return exits.FOUND


def _as_object(folder: RunFolder, chronicle: Chronicle, depth: int | None) -> dict[str, object]:
    state = chronicle.state
    shown = [node for node in state.nodes.values() if depth is None or node.depth <= depth]
    best = state.incumbent.node_id if state.incumbent else None
    path = [best, *(node.node_id for node in ancestors(state, state.node(best)))] if best else []
    return {
        "run": folder.run_id,
        "best": best,
        "path_to_best": [node_id for node_id in reversed(path) if node_id != ROOT],
        "nodes": sorted(shown, key=lambda node: int(node.node_id[1:])),
    }
