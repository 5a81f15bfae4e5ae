"""`ksearch show`: a run's summary, one of its nodes, or one of its candidates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from actors.planner.core.selection import calibration
from actors.planner.core.state import Node, path_titles
from ksearch_async.cli import exits
from ksearch_async.cli.eval import printed_lines, profile_table
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal, suggestion
from ksearch_async.runs.candidates import Version, Versions, archive_of, attempt_of
from ksearch_async.runs.folder import RunFolder, find_run, read_run
from ksearch_async.runs.run import Run, Told
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.lines import (
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
from ksearch_async.views.terminal import put_json, put_lines, put_raw, terminal_width, told_lines
from ksearch_async.views.text import counted, duration, plain, workload_table
from ksearch_async.views.tree_layout import state_word, tree_lines
from messages.base import ROOT
from messages.events import Built, CandidateEvaluated
from messages.verdicts import DidNotBuild, Measured, Outpaced, outcome_line, worth_text


def show_node(
    folder: RunFolder, node_id: str, *, attempt: int | None, prompt: bool, answer: bool, as_json: bool
) -> int:
    """Print a node's attempts, or one of them, or what was asked or answered in it."""
    chronicle = read_run(folder, with_texts=True)
    node = chronicle.state.nodes.get(node_id)
    if node is None:
        hint = suggestion(node_id, chronicle.state.nodes, f"ksearch tree {folder.run_id} lists them")
        raise refusal(f"run {folder.run_id!r} has no node {node_id!r}", hint)
    if prompt or answer:
        told = attempt_of(chronicle, node_id, attempt)
        texts = [text for text, wanted in ((told.prompt, prompt), (told.answer, answer)) if wanted]
        put_json(_node_object(told)) if as_json else put_raw("\n\n".join(texts))
        return exits.FOUND
    shown = archive_of(chronicle).told(node_id) if attempt is None else [attempt_of(chronicle, node_id, attempt)]
    if as_json:
        put_json({"node": node, "attempts": [_node_object(told) for told in shown]})
    else:
        put_lines(_node_lines(folder, chronicle, node, shown))
    return exits.FOUND


def _node_lines(folder: RunFolder, chronicle: Run, node: Node, shown: list[Told]) -> Iterator[str]:
    titles = path_titles(chronicle.state, node.node_id)
    yield from told_lines("node       ", f"{node.node_id}: {node.title}")
    if len(titles) > 1:
        yield from told_lines("on top of  ", " > ".join(titles[:-1]))
    yield f"state      {_state_words(node, at_work=folder.in_use())}"
    if node.prune_reason:
        yield from told_lines("pruned     ", node.prune_reason)
    if node.best is not None:
        worth = worth_text(node.best.credit, node.best.speedup, is_least=node.best.is_least)
        yield f"best       {worth} ({node.best.candidate_id[:8]})"
    if node.description and node.description != node.title:
        yield ""
        yield from told_lines("", node.description)
    yield ""
    if not shown:
        yield "no coder has answered for it yet"
    for told in shown:
        yield from _attempt_lines(told)
    if shown:
        yield ""
        yield f"prompt: ksearch show {folder.run_id} {node.node_id} --attempt {shown[-1].number} --prompt"


def _state_words(node: Node, *, at_work: bool) -> str:
    said = [state_word(node, at_work=at_work), f"V {node.priority:.2f}", f"difficulty {node.difficulty}"]
    if node.expected_gain is not None:
        said.append(f"a gain of {node.expected_gain:.2f}x expected")
    if node.rounds:
        said.append(counted(node.rounds, "round", "rounds"))
    said += ["forbidden"] if node.barred else ["pinned"] if node.pinned else []
    return ", ".join(said)


def _attempt_lines(told: Told) -> Iterator[str]:
    where = f", round {told.round}" if told.round else ""
    candidate = f", candidate {told.candidate_id[:8]}" if told.candidate_id else ""
    lead = f"{told.number}. "
    yield from told_lines(lead, f"{told.mode}{where}{candidate}: {told.outcome or told.fate.replace('_', ' ')}")
    ended = "" if told.finish_reason == "stop" else f", ended: {told.finish_reason}"
    took = f"{told.usage.completion_tokens:,} tokens in {told.latency_s:.1f} s"
    yield from told_lines(" " * len(lead), f"{told.model}, {took}{ended}")
    for note in told.notes:
        yield from told_lines(" " * len(lead), f"note: {note}")


def _node_object(told: Told) -> dict[str, object]:
    plain = msgspec.to_builtins(told)
    assert isinstance(plain, dict)  # noqa: S101 - for the type checker: a struct becomes one
    return plain


_LOG_LINES = 20


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what became of it."""

    version: Version
    base: Version | None
    """Candidate that its branch started from; null: the reference."""
    title: str
    """Title of its node."""
    outcome: Built | DidNotBuild | None
    """Result of its latest conclusive compilation."""
    verdicts: tuple[CandidateEvaluated, ...]


def show_candidate(folder: RunFolder, name: str, *, source: bool, as_json: bool) -> int:
    """Print what is known of a candidate, or its files."""
    story = _story(folder, name)
    if as_json:
        put_json(_candidate_object(folder, story))
    elif source:
        put_raw("\n".join(file.text.rstrip("\n") for file in story.version.candidate.files))
    else:
        put_lines(_candidate_lines(folder, story))
    return exits.FOUND


def _story(folder: RunFolder, name: str) -> Story:
    run = read_run(folder, with_texts=True)
    versions, archive = Versions(run), archive_of(run)
    version = versions.named(name)
    if version is None:
        raise refusal(f"{ROOT!r} is the reference, which is no candidate", "ksearch tree draws the nodes")
    built = [each.outcome for each in archive.builds.get(version.candidate_id, ())]
    telling = [outcome for outcome in built if outcome.log] or built
    return Story(
        version=version,
        base=versions.named(version.base_id) if version.base_id else None,
        title=run.state.node(version.node_id).title,
        outcome=telling[-1] if telling else None,
        verdicts=tuple(evaluated for evaluated, _ in archive.verdicts.get(version.candidate_id, ())),
    )


def _candidate_lines(folder: RunFolder, story: Story) -> Iterator[str]:
    version, outcome = story.version, story.outcome
    candidate = version.candidate
    round_words = f"in round {version.round}" if version.round else "not evaluated"
    yield f"candidate  {version.candidate_id}, {candidate.language}"
    yield from told_lines("found      ", f"{round_words}: {version.node_id}, {story.title}")
    yield f"built on   {story.base.said if story.base else 'the reference'}"
    for evaluated in story.verdicts:
        yield from _verdict_lines(evaluated)
    if not story.verdicts and not isinstance(outcome, DidNotBuild):
        yield "verdict    none yet"
    if isinstance(outcome, DidNotBuild):
        yield from told_lines("verdict    ", f"did not build: {outcome.reason}")
    for file in candidate.files:
        yield f"file       {plain(file.path)}, {counted(len(file.text.splitlines()), 'line', 'lines')}"
    yield f"lies in    {folder.candidates / version.candidate_id}"
    if outcome is not None and outcome.log.strip():
        yield ""
        yield "output of the compiler:"
        yield from _log_lines(outcome.log.strip().splitlines())
    yield ""
    short = version.candidate_id[:8]
    yield f"its files: ksearch show {folder.run_id} {short} --source"
    yield f"changes: ksearch diff {folder.run_id} {short}"


def _verdict_lines(evaluated: CandidateEvaluated) -> Iterator[str]:
    verdict = evaluated.verdict
    yield from told_lines("verdict    ", outcome_line(verdict))
    where = " ".join(part for part in (evaluated.device, evaluated.unit) if part)
    by = f", {evaluated.worker}" if evaluated.worker else ""
    took = f"{evaluated.wall_s:.1f} s, {evaluated.lease_s:.1f} s of that alone on the device"
    yield from told_lines("           ", f"{evaluated.purpose}: {where}{by}; {took}")
    if isinstance(verdict, Measured | Outpaced):
        yield from (f"           {line}" for line in workload_table(verdict.workloads))
    yield from printed_lines(verdict)
    if isinstance(verdict, Measured):
        yield from profile_table(verdict.profile)


def _log_lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_LOG_LINES]:
        yield from told_lines("  ", line)
    if len(lines) > _LOG_LINES:
        yield f"  and {counted(len(lines) - _LOG_LINES, 'more line', 'more lines')}: --json has all of it"


def _candidate_object(folder: RunFolder, story: Story) -> dict[str, object]:
    version, outcome = story.version, story.outcome
    return {
        "run": folder.run_id,
        "candidate_id": version.candidate_id,
        "path": str(folder.candidates / version.candidate_id),
        "language": version.candidate.language,
        "entry_point": version.candidate.entry_point,
        "files": version.candidate.files,
        "build_log": outcome.log if outcome else "",
        "did_not_build": outcome.reason if isinstance(outcome, DidNotBuild) else "",
        "verdicts": story.verdicts,
        "node_id": version.node_id,
        "round": version.round or 0,
        "base_id": version.base_id,
    }


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
    """Show a run: state, best kernel, tree, attempts by status. Or one of its nodes, or candidates.

    Args:
        run: A run's id, its folder, or `latest`.
        node: A node's id (n3): its attempts, one by one. Or a round's number, the beginning of a candidate's id, or
            `best`: the candidate, and the results of compiler and evaluator.
        attempt: Number of the node's attempt, from 1. [default: the last]
        prompt: Print only the coder's prompt in that attempt.
        answer: Print only the coder's answer, verbatim.
        source: Print only the candidate's files.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
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
    chronicle = read_run(folder)
    if as_json:
        put_json(_summary(folder, chronicle))
    else:
        put_lines(_lines(folder, chronicle))
    return exits.FOUND


def _lines(folder: RunFolder, chronicle: Run) -> Iterator[str]:
    state, started = chronicle.state, chronicle.started
    yield f"run        {folder.run_id}"
    if started is not None:
        yield f"task       {started.task.name}, {started.description.language}, {started.target.device}"
    in_use = folder.in_use()
    yield f"state      {state_line(chronicle, in_use=in_use)}"
    yield f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}"
    if workers := workers_line(chronicle):
        yield f"workers    {workers}"
    yield f"attempts   {fates_line(chronicle)}"
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


def _summary(folder: RunFolder, chronicle: Run) -> dict[str, object]:
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
