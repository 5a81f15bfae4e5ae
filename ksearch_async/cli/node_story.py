"""`ksearch show RUN NODE`: an action, and what was tried for it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from actors.bus.journal import read_journal
from actors.planner.core.state import Node
from actors.planner.core.tree import path_titles
from ksearch_async.attempts import Told, attempt_of, read_attempts
from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.output import put_json, put_lines, put_raw, told_lines
from ksearch_async.drawing import state_word
from ksearch_async.phrases import counted
from ksearch_async.refusals import refusal, suggestion
from ksearch_async.runs import RunFolder, open_chronicle
from messages.verdicts import worth_text


def show_node(
    folder: RunFolder, node_id: str, *, attempt: int | None, prompt: bool, answer: bool, as_json: bool
) -> int:
    """Print a node's attempts, or one of them, or what was asked or answered in it.

    Raises:
        ConfigError: there is no such node or attempt.
        messages.errors.BusError: the journal is damaged, or of a newer release.
    """
    chronicle = open_chronicle(folder)
    node = chronicle.state.nodes.get(node_id)
    if node is None:
        hint = suggestion(node_id, chronicle.state.nodes, f"ksearch tree {folder.run_id} lists them")
        raise refusal(f"run {folder.run_id!r} has no node {node_id!r}", hint)
    attempts = read_attempts(read_journal(folder.journal))
    if prompt or answer:
        told = attempt_of(attempts, node_id, attempt)
        texts = [text for text, wanted in ((told.prompt, prompt), (told.answer, answer)) if wanted]
        put_json(_object(told)) if as_json else put_raw("\n\n".join(texts))
        return exits.FOUND
    shown = attempts.get(node_id, []) if attempt is None else [attempt_of(attempts, node_id, attempt)]
    if as_json:
        put_json({"node": node, "attempts": [_object(told) for told in shown]})
    else:
        put_lines(_lines(folder, chronicle, node, shown))
    return exits.FOUND


def _lines(folder: RunFolder, chronicle: Chronicle, node: Node, shown: list[Told]) -> Iterator[str]:
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
        yield f"what was asked: ksearch show {folder.run_id} {node.node_id} --attempt {shown[-1].number} --prompt"


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


def _object(told: Told) -> dict[str, object]:
    plain = msgspec.to_builtins(told)
    assert isinstance(plain, dict)  # noqa: S101 - for the type checker: a struct becomes one
    return plain
