"""Lays out what the live view shows, as lines that fit a terminal. Knows no terminal: sizes in, styled lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec
from rich.text import Text

from actors.planner.core.state import Node, NodeState, Score, SearchState
from ksearch_async.chronicle import BestScore
from ksearch_async.phrases import counted, duration, rough_duration
from ksearch_async.progress import Progress, Work, chosen_nodes
from ksearch_async.summary import STOP_WORDS, fates_line
from ksearch_async.workload_table import workload_span
from messages.base import ROOT
from messages.verdicts import CORRECT_FATES, NO_FAILURES, score_text, worth_text

_LABEL_WIDTH = 8
_BAR_WIDTH = 40
_LEVELS = "▁▂▃▄▅▆▇█"
_FEWEST_TREE_ROWS = 3
_NARROWEST_TITLE = 12
_VERBS = ("writing", "building", "evaluating", "confirming")
_STATES: tuple[NodeState, ...] = ("in_flight", "open", "closed", "pruned")


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame is drawn from."""

    progress: Progress
    now: datetime
    width: int
    rows: int
    """Lines that the frame may have, at least 1."""
    in_flight: dict[str, list[Work]]

    @property
    def state(self) -> SearchState:
        """The search."""
        return self.progress.chronicle.state


Section = Callable[[Moment], Text]


def frame_lines(progress: Progress, *, now: datetime, width: int, rows: int) -> list[Text]:
    """Return at most `rows` lines of at most `width` columns: figures, and below them as much of the tree as fits."""
    moment = Moment(progress=progress, now=now, width=width, rows=rows, in_flight=progress.in_flight(now))
    kept = _kept_sections(rows)
    above = [section(moment) for section in _SECTIONS if section in kept and section is not _footer]
    below = [_footer(moment)] if _footer in kept else []
    lines = [*above, *_tree(moment, rows - len(above) - len(below)), *below]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _kept_sections(rows: int) -> Sequence[Section]:
    """Return what there is room for, and three lines of the tree; what says most stays longest."""
    return _BY_WEIGHT[: max(1, rows - _FEWEST_TREE_ROWS)]


def _header(moment: Moment) -> Text:
    started = moment.progress.chronicle.started
    task = f"{started.task.name} ({started.description.language})" if started else ""
    device = f"  {started.target.device}" if started else ""
    going = moment.state.running and not moment.state.paused
    left_s = moment.progress.left_s(moment.now) if going else None
    ending = f", about {rough_duration(left_s)} left" if left_s is not None else ""
    clock = f"{duration(round(moment.progress.elapsed_s(moment.now)))}{ending}".replace(".0 s", " s")
    room = moment.width - len(clock) - 2
    head = Text.assemble((task, "bold"), (device, "dim"))
    if room < len(task):
        return Text.assemble((task, "bold"), "  ", clock)
    head.truncate(room, overflow="ellipsis")
    return Text.assemble(head, " " * (moment.width - head.cell_len - len(clock)), clock)


def _rounds(moment: Moment) -> Text:
    state = moment.state
    total = state.settings.budget.max_rounds
    said = f" {state.rounds} of {total}"
    width = min(_BAR_WIDTH, moment.width - _LABEL_WIDTH - len(said))
    if width < 5:
        return _labelled("rounds", said.strip())
    done = round(width * min(1.0, state.rounds / total))
    return _labelled("rounds", ("█" * done, "cyan"), ("░" * (width - done), "dim"), said)


def _best(moment: Moment) -> Text:
    best = moment.progress.chronicle.best("")
    wanted = moment.state.settings.budget.target_speedup
    goal = f" of {wanted:g}{'' if moment.state.scored else 'x'} wanted" if wanted is not None else ""
    if best is None:
        waiting = max((one.speedup for one in moment.state.provisional.values()), default=None)
        if waiting is not None:
            return _labelled("best", (f"{waiting:.2f}x, to be confirmed", "dim"), goal)
        untimed = len(moment.progress.chronicle.untimed())
        return _labelled("best", (f"{untimed} correct, not timed" if untimed else "none yet", "dim"), goal)
    style = "bold green" if best.faster else "bold"
    place = (f"  round {best.round}, {best.node_id}", "dim")
    if isinstance(best, BestScore):
        initial = "" if best.initial_score is None else f", the initial program {score_text(best.initial_score)}"
        return _labelled("best", (f"score {score_text(best.score)}", style), goal, initial, place)
    low, high = best.speedup_interval
    span = workload_span(best.workloads)
    rest = f" the reference [{low:.2f}, {high:.2f}]{goal}, {best.latency_us:.1f} us{f'; {span}' if span else ''}"
    return _labelled("best", (f"{best.speedup_vs_reference:.2f}x", style), rest, place)


def _curve(moment: Moment) -> Text:
    values = moment.progress.chronicle.curve
    first = next((value for value in values if value), None)
    if first is None:
        return _labelled("curve", ("nothing to draw yet", "dim"))
    if moment.state.scored:
        lifted = [value - first + abs(first) if value else 0.0 for value in values]  # scores may be negative
        return _drawn(moment, f"{score_text(first)} ", f" {score_text(values[-1])}", lifted)
    return _drawn(moment, f"{first:.2f}x ", f" {values[-1]:.2f}x", values)


def _drawn(moment: Moment, low: str, high: str, values: Sequence[float]) -> Text:
    width = min(_BAR_WIDTH, moment.width - _LABEL_WIDTH - len(low) - len(high))
    return _labelled("curve", (low, "dim"), (sparkline(values, max(1, width)), "green"), high)


def _fates(moment: Moment) -> Text:
    return _labelled("fates", fates_line(moment.progress.chronicle))


def _model(moment: Moment) -> Text:
    usage, budget = moment.state.usage, moment.state.settings.budget
    calls = f"{usage.calls} of {budget.max_calls} calls" if budget.max_calls else counted(usage.calls, "call", "calls")
    tokens = f"{usage.tokens:,}{f' of {budget.max_tokens:,}' if budget.max_tokens else ''} tokens"
    faults = moment.progress.chronicle.faults.total()
    failed = (f", {faults} tries failed", "red") if faults else ""
    cached = f", {usage.cached_tokens / usage.prompt_tokens:.0%} of prompts cached" if usage.cached_tokens else ""
    return _labelled("model", f"{calls}, {tokens}{cached}", failed)


def _flight(moment: Moment) -> Text:
    works = [work for node_id, found in moment.in_flight.items() if node_id != ROOT for work in found]
    counts = [(sum(work.verb == verb for work in works), verb) for verb in _VERBS]
    said = [f"{count} {verb}" for count, verb in counts if count]
    if ROOT in moment.in_flight:
        said.append(_words(moment.in_flight[ROOT][0]))
    return _labelled("flight", (", ".join(said) or "nothing", "cyan" if said else "dim"))


def _nodes(moment: Moment) -> Text:
    counts = Counter(node.state for node in moment.state.nodes.values() if node.node_id != ROOT)
    said = ", ".join(f"{counts[state]} {state.replace('_', ' ')}" for state in _STATES if counts[state])
    return _labelled("tree", f"{counted(counts.total(), 'node', 'nodes')}{f': {said}' if said else ''}")


def _footer(moment: Moment) -> Text:
    state = moment.state
    leads = moment.progress.leads
    if moment.progress.chronicle.resting:
        return Text(f"paused; it goes on with: ksearch continue {state.run_id}", "yellow")
    if state.status == "stopping" and state.stopped_by is not None:
        again = leads and state.stopped_by == "interrupted"
        why = "Ctrl-C again stops now" if again else STOP_WORDS[state.stopped_by]
        return Text(f"stopping when what is in flight is done; {why}", "yellow")
    if not leads:
        return Text("Ctrl-C ends the view, not the run", "dim")
    return Text("Ctrl-C stops when what is in flight is done", "dim")


_SECTIONS: tuple[Section, ...] = (_header, _rounds, _best, _curve, _fates, _model, _flight, _nodes, _footer)
_BY_WEIGHT: tuple[Section, ...] = (_rounds, _best, _flight, _header, _nodes, _fates, _model, _curve, _footer)


def _labelled(label: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{label:<{_LABEL_WIDTH}}", "dim"), *parts)


def _tree(moment: Moment, rows: int) -> list[Text]:
    """Return the lines of the nodes that fit, their standing in a column of its own."""
    nodes = chosen_nodes(moment.state, rows) if rows > 0 else []
    if not nodes:
        return []
    standings = [_standing(moment, node) for node in nodes]
    right = min(max(standing.cell_len for standing in standings), moment.width // 2)
    marks = _marks(moment.state)
    edges = _edges(nodes, moment.width)
    heads = [_head(node, edge, marks.get(node.node_id, "")) for node, edge in zip(nodes, edges, strict=True)]
    left = min(max(head.cell_len for head in heads), max(_NARROWEST_TITLE, moment.width - right - 2))
    for head in heads:
        head.truncate(left, overflow="ellipsis", pad=True)
    return [Text.assemble(head, "  ", standing) for head, standing in zip(heads, standings, strict=True)]


def _head(node: Node, edge: str, mark: str) -> Text:
    style = "bold" if mark else "dim" if node.state == "pruned" else ""
    star = f"{mark} " if mark else ""
    return Text.assemble((edge, "dim"), f"{node.node_id} ", (star, "yellow"), (" ".join(node.title.split()), style))


def _marks(state: SearchState) -> dict[str, str]:
    """Return the star of the best node, and the hollow ones of those above it."""
    if state.incumbent is None:
        return {}
    marks, node = {state.incumbent.node_id: "★"}, state.node(state.incumbent.node_id)
    while (node := state.node(node.parent_id)).node_id != ROOT:
        marks[node.node_id] = "☆"
    return marks


def _edges(nodes: Sequence[Node], width: int) -> Iterator[str]:
    """Yield what joins each node to its parent; deep trees are drawn narrower."""
    deepest = max(node.depth for node in nodes)
    tee, corner, line, blank = ("├─ ", "└─ ", "│  ", "   ") if deepest * 3 <= width // 3 else ("├", "└", "│", " ")
    last = {node.parent_id: node.node_id for node in nodes}
    by_id = {node.node_id: node for node in nodes}
    for node in nodes:
        drawn = corner if last[node.parent_id] == node.node_id else tee
        above = by_id.get(node.parent_id)
        while above is not None:
            drawn = (blank if last[above.parent_id] == above.node_id else line) + drawn
            above = by_id.get(above.parent_id)
        yield drawn


def _standing(moment: Moment, node: Node) -> Text:
    """Say what is being done for a node, or what came of it."""
    parts = [_result(moment.progress.result(node))]
    works = moment.in_flight.get(node.node_id, [])
    if works:
        more = f" +{len(works) - 1}" if len(works) > 1 else ""
        parts.append(Text(_words(works[0]) + more, "cyan"))
    elif node.state == "pruned":
        parts.append(Text("pruned", "dim"))
    elif node.state == "open":
        parts.append(Text(f"open, V {node.priority:.2f}", "dim"))
    if failed := _failures(node):
        parts.append(Text(f"{failed} failed", "red"))
    return Text(", ").join(part for part in parts if part)


def _failures(node: Node) -> int:
    """Count failed attempts; a correct candidate is none, nor is a coder that sees nothing further."""
    return sum(count for fate, count in node.fates if fate not in NO_FAILURES | CORRECT_FATES)


def _words(work: Work) -> str:
    return work.verb if work.since_s is None else f"{work.verb} {rough_duration(work.since_s)}"


def _result(score: Score | None) -> Text:
    if score is None:
        return Text("")
    if score.speedup is None:
        return Text("correct" if score.credit is None else score_text(score.credit))
    worth = worth_text(score.credit, score.speedup, is_least=score.is_least)
    return Text(worth, "green" if (score.credit or 0.0) > 1.0 else "")


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values, at most `width` of them (the last of each stretch), in eighths of the largest; 0 is blank."""
    if len(values) > width:
        values = [values[(index + 1) * len(values) // width - 1] for index in range(width)]
    top = max(values, default=0.0)
    return "".join(_LEVELS[max(0, round(value / top * 8) - 1)] if value > 0 else " " for value in values)
