"""`ksearch show`: a run's summary and its tree, from the journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from actors.planner.core.beliefs import calibration
from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.candidate_story import show_candidate
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node_story import show_node
from ksearch_async.cli.output import put_json, put_lines, terminal_width
from ksearch_async.drawing import tree_lines
from ksearch_async.phrases import duration
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder, find_run, open_chronicle, runs_dir_or_default
from ksearch_async.summary import (
    confirmations_line,
    expectations_line,
    fates_line,
    faults_line,
    result_lines,
    standing,
    state_line,
    usage_line,
    way_on,
    workers_line,
)

_NODE = re.compile(r"n\d+")


def show_command(
    run: str = "latest",
    node: str | None = None,
    /,
    *,
    attempt: int | None = None,
    prompt: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    answer: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    source: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Show a run: state, best kernel, tree, counts by fate. Or one of its nodes, or candidates.

    Args:
        run: A run's id, its folder, or `latest`.
        node: A node's id (n3): what was tried for it, attempt by attempt. Or a round's number, the beginning of a
            candidate's id, or `best`: what was written, and what compiler and evaluator said of it.
        attempt: Which of the node's attempts, from 1. [default: the last]
        prompt: Print what the coder was asked in that attempt, and nothing else.
        answer: Print what it answered, to the letter.
        source: Print the candidate's files, and nothing else.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    is_about_attempt = attempt is not None or prompt or answer
    if node is not None and not _NODE.fullmatch(node):
        if is_about_attempt:
            raise refusal("--attempt, --prompt and --answer are about a node", "ksearch show RUN NODE --prompt")
        return show_candidate(folder, node, source=source, as_json=as_json)
    if source:
        raise refusal("--source is about a candidate", "ksearch show RUN best --source")
    if node is not None:
        return show_node(folder, node, attempt=attempt, prompt=prompt, answer=answer, as_json=as_json)
    if is_about_attempt:
        raise refusal("--attempt, --prompt and --answer are about a node", "ksearch show RUN NODE --prompt")
    chronicle = open_chronicle(folder)
    if as_json:
        put_json(_summary(folder, chronicle))
    else:
        put_lines(_lines(folder, chronicle))
    return exits.FOUND


def _lines(folder: RunFolder, chronicle: Chronicle) -> Iterator[str]:
    state, started = chronicle.state, chronicle.started
    yield f"run        {folder.run_id}"
    if started is not None:
        yield f"task       {started.task.name}, {started.description.language}, {started.target.device}"
    in_use = folder.in_use()
    yield f"state      {state_line(chronicle, in_use=in_use)}"
    yield f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}"
    if workers := workers_line(chronicle):
        yield f"workers    {workers}"
    yield f"fates      {fates_line(chronicle)}"
    if confirmed := confirmations_line(chronicle):
        yield f"confirmed  {confirmed}"
    if expected := expectations_line(state):
        yield f"expected   {expected}"
    yield f"model      {usage_line(chronicle)}"
    if chronicle.faults:
        yield f"endpoint   failed tries: {faults_line(chronicle)}"
    yield from result_lines(chronicle, str(folder.best), str(folder.candidates))
    if further := way_on(chronicle, in_use=in_use, run=folder.run_id):
        yield f"go on      {further}"
    if state.nodes:
        yield ""
        yield from tree_lines(state, width=terminal_width(), at_work=in_use)


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
        "workers": chronicle.workers,
        "usage": state.usage,
        "cost_usd": state.cost_usd,
        "unpriced_calls": chronicle.unpriced_calls,
        "best": chronicle.best(str(folder.best)),
        "untimed": chronicle.untimed(),
        "confirmations": chronicle.confirmations,
        "expectations": calibration(state),
        "provisional": sorted(state.provisional.values(), key=lambda found: -found.credit),
        "nodes": sorted(state.nodes.values(), key=lambda node: int(node.node_id[1:])),
    }
