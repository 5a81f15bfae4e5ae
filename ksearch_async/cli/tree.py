"""`ksearch tree`: the search tree; with `--why`, the score of each frontier node."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from actors.planner.core.selection import Terms, ranking, spreads
from actors.planner.core.state import Node, SearchState, ancestors
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import open_bus
from ksearch_async.fleet.status import find_run_id, named_folder, read_chronicle
from ksearch_async.runs.folder import find_run, read_run
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import note, put, put_json, terminal_width
from ksearch_async.views.text import Column, table_lines
from ksearch_async.views.tree_layout import tree_lines
from messages.base import ROOT, ConfigError

_LEAST_TITLE = 12
"""Characters of a title that are kept even where parts of the score have to be left out."""


def _scored(state: SearchState, node: Node, terms: Terms) -> dict[str, object]:
    return {
        "node": node.node_id,
        "parent": node.parent_id,
        "title": node.title,
        "total": terms.total,
        **msgspec.structs.asdict(terms),
        "pinned": node.pinned > 0,
        "too_hard": _is_too_hard(state, node),
    }


def _is_too_hard(state: SearchState, node: Node) -> bool:
    """Say whether a node is above the run's largest difficulty: it waits until nothing easier is open."""
    return node.difficulty > state.settings.max_difficulty and not node.pinned


def _why_lines(state: SearchState, *, width: int | None) -> Iterator[str]:
    found = ranking(state)
    if not found:
        return
    spread = spreads(state)
    yield f"rule {'spread' if spread else 'paper'}: the first is chosen next"
    parts = [
        Column("score", number=True),
        Column("belief", number=True, rank=1),
        *(Column(name, number=True, rank=2) for name in ("evidence", "explore", "hard", "load") if spread),
        Column("person", number=True, rank=1),
    ]
    yield from table_lines(
        [Column("node"), *parts, Column("action", least=_LEAST_TITLE)],
        [_row(state, *each, spread=spread) for each in found],
        width=width,
    )


def _row(state: SearchState, node: Node, terms: Terms, *, spread: bool) -> list[str]:
    shared = [terms.evidence, terms.exploration, terms.difficulty, terms.load] if spread else []
    parts = [f"{part:+.3f}" for part in (terms.belief, *shared, terms.steering)]
    mark = "pinned: " if node.pinned > 0 else "too hard for now: " if _is_too_hard(state, node) else ""
    return [node.node_id, f"{terms.total:.3f}", *parts, mark + " ".join(node.title.split())]


def waiting_line(state: SearchState) -> str:
    """Count the open nodes that are not on the frontier, by why; empty if all are."""
    counts = Counter(
        "forbidden" if node.barred else "below a node that has no correct candidate"
        for node in state.nodes.values()
        if node.state == "open" and node.node_id not in state.frontier_ids
    )
    return "; ".join(f"{count} open, {why}" for why, count in counts.items())


_BEST, _ABOVE = "★ the best kernel", "☆ what it was built on"


def tree_command(
    run: str = "latest",
    /,
    *,
    depth: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    why: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    nats: str | None = None,
    credentials: Path | None = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Draw a run's tree: each action's best result, state, V, and how its attempts failed.

    Args:
        run: A run's id, its folder, or `latest`.
        depth: Levels below the root to draw; deeper nodes are counted.
        why: Instead of the tree, list the actions that may be chosen next, in that order, with the parts of their
            scores.
        nats: Read the run from this NATS server, not from its folder here. [env: KSEARCH_NATS, for runs without a
            folder here]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: the nodes, and the path to the best; with --why the scores.
    """
    if why and depth is not None:
        raise refusal("--depth and --why cannot be given together")
    if _is_there(run, nats, runs_dir_or_default(runs_dir)):
        run_id, chronicle = anyio.run(_read_there, run, nats, credentials)
        at_work = chronicle.finished is None
    else:
        folder = find_run(run, runs_dir_or_default(runs_dir))
        run_id, chronicle, at_work = folder.run_id, read_run(folder), folder.in_use()
    if why:
        return _why(run_id, chronicle.outlook, as_json=as_json)
    state = chronicle.state
    if as_json:
        put_json(_as_object(run_id, chronicle, depth))
        return exits.FOUND
    for line in tree_lines(state, width=terminal_width(), depth=depth, at_work=at_work):
        put(line)
    if not state.nodes:
        note(f"run {run_id} has no tree yet: its planner has not answered")
    elif state.incumbent is not None:
        note(_BEST if state.node(state.incumbent.node_id).depth == 1 else f"{_BEST}  {_ABOVE}")
    return exits.FOUND


def _is_there(run: str, nats: str | None, runs_dir: Path) -> bool:
    """Say whether a run is to be read from a server: from the one that is given, or the environment's if it must be."""
    if nats is not None or not os.environ.get("KSEARCH_NATS"):
        return nats is not None
    try:
        find_run(run, runs_dir)
    except ConfigError:
        # A run that has a folder here and no event yet is printed without a tree.
        return named_folder(run, runs_dir, has_server=False) is None
    return False


async def _read_there(run: str, nats: str | None, credentials: Path | None) -> tuple[str, Run]:
    async with open_bus(nats, os.environ, role="planner", credentials=credentials) as bus:
        run_id = await find_run_id(bus, run)
        return run_id, await read_chronicle(bus, run_id)


def _why(run_id: str, state: SearchState, *, as_json: bool) -> int:
    if as_json:
        rule = "spread" if spreads(state) else "paper"
        put_json({"run": run_id, "rule": rule, "frontier": [_scored(state, *each) for each in ranking(state)]})
        return exits.FOUND
    for line in _why_lines(state, width=terminal_width()):
        put(line)
    if not state.frontier_ids:
        note(f"no action of run {run_id} may be chosen now")
    if waiting := waiting_line(state):
        note(waiting)
    return exits.FOUND


def _as_object(run_id: str, chronicle: Run, depth: int | None) -> dict[str, object]:
    state = chronicle.state
    shown = [node for node in state.nodes.values() if depth is None or node.depth <= depth]
    best = state.incumbent.node_id if state.incumbent else None
    path = [best, *(node.node_id for node in ancestors(state, state.node(best)))] if best else []
    return {
        "run": run_id,
        "best": best,
        "path_to_best": [node_id for node_id in reversed(path) if node_id != ROOT],
        "nodes": sorted(shown, key=lambda node: int(node.node_id[1:])),
    }
