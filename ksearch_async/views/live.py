"""The live view: frames of a running search, redrawn in place a few times a second.

On wide terminals the figures are shown beside the tree, each in as many lines as there is room for. Elsewhere they are
above it, in one line each, and with few rows only the most important ones.

It reads nothing but the records that it receives. A frame is one write, from a thread: a terminal that is stopped
(Ctrl-S, a hanging connection) holds up the view, not the search. The cursor stays visible and the terminal's modes
unchanged, so there is nothing to restore, however the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TextIO, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from rich.style import Style
from rich.text import Text

from actors.planner.core.state import Node, NodeState, Score, SearchState, better
from ksearch_async.runs.run import DUPLICATE, Best, BestScore, Tried
from ksearch_async.views.lines import STOP_WORDS, fates_line, spend_words
from ksearch_async.views.plain import PlainView
from ksearch_async.views.progress import DeviceUse, Progress, Work
from ksearch_async.views.terminal import legible, one_line
from ksearch_async.views.text import (
    chart_rows,
    counted,
    duration,
    plain,
    rough_duration,
    shortened,
    sparkline,
    tokens_words,
    workload_span,
)
from ksearch_async.views.tree_layout import Row, chosen_rows, marks_of
from messages.base import ROOT
from messages.codec import Record
from messages.verdicts import CORRECT_FATES, NO_FAILURES, score_text, worth_text

LABEL_WIDTH = 8
Part: TypeAlias = tuple[str, str, int]
"""Text, style and rank: parts of a higher rank are left out first."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, and the space to show it in."""

    progress: Progress
    now: datetime
    width: int
    """Columns of a line."""
    in_flight: dict[str, list[Work]]
    is_wide: bool = False
    """True if there is space for more than the minimum of each figure."""

    @property
    def state(self) -> SearchState:
        """The state of the search."""
        return self.progress.chronicle.state

    @property
    def room(self) -> int:
        """Columns beside a label."""
        return self.width - LABEL_WIDTH


def labelled(label: str, *parts: str | tuple[str, str] | Text) -> Text:
    """Return a line with a label in front."""
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), *parts)


def fitting(parts: Sequence[Part], room: int) -> list[tuple[str, str]]:
    """Return the parts that fit into this number of columns, in their order; those of rank 0 always."""
    kept = [part for part in parts if part[0]]
    while sum(len(part[0]) for part in kept) > room and (most := max((part[2] for part in kept), default=0)) > 0:
        kept.remove(next(part for part in reversed(kept) if part[2] == most))
    return [(text, style) for text, style, _ in kept]


def work_words(work: Work) -> str:
    """Return a piece of work and its duration as text: `evaluating 12 s`."""
    return work.verb if work.since_s is None else f"{work.verb} {rough_duration(work.since_s)}"


Figure: TypeAlias = Callable[[Moment, int], list[Text]]
"""Returns at most the given number of lines (at least 1), or none if it has nothing to show."""

_BAR_WIDTH, _SHORT_BAR = 40, 24
_SHARE_WIDTH = 10
_LONGEST_NAME = 24
_CHART_ROWS = (4, 8)
"""Fewest and most rows of a chart."""
_SCALE_WIDTH = 7
_NARROWEST_TASK = 8
_VERBS = ("writing", "building", "evaluating", "confirming")
_STATES: tuple[NodeState, ...] = ("in_flight", "open", "closed", "pruned")


def header(moment: Moment) -> Text:
    """Show task and device on the left, elapsed and remaining time on the right."""
    started = moment.progress.chronicle.started
    task = f"{plain(started.task.name)} ({started.description.language})" if started else ""
    device = f"  {plain(started.target.device)}" if started else ""
    going = moment.state.running and not moment.state.paused
    left_s = moment.progress.left_s(moment.now) if going else None
    limit_s = moment.state.settings.budget.wall_clock_s
    ending = f", about {rough_duration(left_s)} left" if left_s is not None else ""
    of = f" of {rough_duration(limit_s)}" if limit_s is not None else ""
    elapsed = duration(round(moment.progress.elapsed_s(moment.now))).replace(".0 s", " s")
    fits = (
        said for said in (f"{elapsed}{of}{ending}", f"{elapsed}{ending}", elapsed) if len(said) <= moment.width // 2
    )
    clock = next(fits, elapsed)
    room = moment.width - len(clock) - 2
    head = Text.assemble((task, "bold"), (device, "dim"))
    if room < _NARROWEST_TASK:
        return Text.assemble((task, "bold"), "  ", clock)
    head.truncate(room, overflow="ellipsis")
    return Text.assemble(head, " " * (moment.width - head.cell_len - len(clock)), clock)


def rounds(moment: Moment, _most: int) -> list[Text]:
    """Show the share of rounds that is used up."""
    state = moment.state
    total = state.settings.budget.max_rounds
    said = f" {state.rounds} of {total}"
    width = min(_BAR_WIDTH, moment.room - len(said))
    if width < 5:
        return [labelled("rounds", said.strip())]
    done = round(width * min(1.0, state.rounds / total))
    return [labelled("rounds", ("█" * done, "cyan"), ("░" * (width - done), "dim"), said)]


def best(moment: Moment, most: int) -> list[Text]:
    """Show the worth of the incumbent, its interval, and where it was found."""
    found = moment.progress.chronicle.best("")
    wanted = moment.state.settings.budget.target_speedup
    goal = f" of {wanted:g}{'' if moment.state.scored else 'x'} wanted" if wanted is not None else ""
    if found is None:
        return [labelled("best", *fitting([(_none_yet(moment), "dim", 0), (goal, "", 1)], moment.room))]
    style = "bold green" if found.faster else "bold"
    place = f"round {found.round}, {found.node_id}"
    if isinstance(found, BestScore):
        lines = [_score_parts(found, goal, style), [(place, "dim", 0)]]
    else:
        lines = [_speedup_parts(found, goal, style), *_latency_parts(found), [(place, "dim", 0)]]
    if most < len(lines):
        joined = _one_line(lines)
        return [labelled("best", *fitting(joined, moment.room))]
    title = f": {plain(found.found_by[-1])}" if found.found_by else ""
    lines[-1].append((title, "dim", 0))
    return _under("best", lines, moment)


def _none_yet(moment: Moment) -> str:
    waiting = max((one.speedup for one in moment.state.provisional.values()), default=None)
    if waiting is not None:
        return f"{waiting:.2f}x, to be confirmed"
    if untimed := len(moment.progress.chronicle.untimed()):
        return f"{untimed} correct, not timed"
    bests = (node.best for node in moment.state.nodes.values())
    least = max((score.speedup for score in bests if score and score.speedup), default=None)
    return "none yet" if least is None else f"none yet; a correct one at about {least:.2f}x"


def _speedup_parts(found: Best, goal: str, style: str) -> list[Part]:
    low, high = found.speedup_interval
    return [
        (f"{found.speedup_vs_reference:.2f}x", style, 0),
        (" the reference", "", 3),
        (f" [{low:.2f}, {high:.2f}]", "", 0),
        (goal, "", 2),
    ]


def _latency_parts(found: Best) -> list[list[Part]]:
    against = found.reference_latency_us
    span = plain(workload_span(found.workloads))
    parts: list[Part] = [
        (f"{found.latency_us:.1f} us", "", 2),
        (f", the reference {against:.1f} us" if against is not None else "", "dim", 5),
        (f"{found.roofline_words}", "dim", 6),
    ]
    return [parts, [(span, "", 4)]] if span else [parts]


def _score_parts(found: BestScore, goal: str, style: str) -> list[Part]:
    initial = "" if found.initial_score is None else f", the initial program {score_text(found.initial_score)}"
    return [(f"score {score_text(found.score)}", style, 0), (goal, "", 1), (initial, "", 2)]


def _one_line(lines: Sequence[Sequence[Part]]) -> list[Part]:
    first, *middle, place = lines
    rest = [(f", {parts[0][0]}", parts[0][1], parts[0][2]) for parts in middle]
    return [*first, *rest, (f"  {place[0][0]}", "dim", 1)]


def curve(moment: Moment, most: int) -> list[Text]:
    """Draw the best so far over the rounds."""
    values = moment.progress.chronicle.curve
    first = next((value for value in values if value), None)
    if first is None:
        why = "nothing is confirmed yet" if moment.state.provisional else "nothing to draw yet"
        return [labelled("curve", (why, "dim"))]
    scored = moment.state.scored
    lifted = [value - first + abs(first) if value else 0.0 for value in values] if scored else values
    low, high = (score_text(first), score_text(values[-1])) if scored else (f"{first:.2f}x", f"{values[-1]:.2f}x")
    if most >= _CHART_ROWS[0] + 1:
        return _chart(moment, lifted, high, min(_CHART_ROWS[1], most - 1))
    width = min(_BAR_WIDTH, moment.room - len(low) - len(high) - 2)
    drawn = sparkline(lifted, max(1, width)).lstrip()
    return [labelled("curve", (f"{low} ", "dim"), (drawn, "green"), f" {high}")]


def _chart(moment: Moment, values: Sequence[float], high: str, height: int) -> list[Text]:
    width = max(1, moment.room - _SCALE_WIDTH)
    reference = None if moment.state.scored else 1.0
    rows = chart_rows(values, width, height, mark=reference)
    top = max(values)
    at_reference = height - 1 - int(1.0 / top * height) if reference and top > 1.0 else None
    lines = []
    above = width  # the first column of the line above in which something is drawn: it only ever rises
    for number, row in enumerate(rows):
        blanks = len(row) - len(row.lstrip(" ┄"))
        scale = high if number == 0 else "1.00x" if number == at_reference else ""
        lead = (f"{scale:>{_SCALE_WIDTH - 1}} {row[:blanks]}", "dim")
        body = (row[blanks:above], "green"), (row[above:], "dim green")
        lines.append(labelled("" if number else "curve", lead, *body))
        above = min(above, blanks)
    ends = ("round 1", str(len(values)))
    between = width - len(ends[0]) - len(ends[1])
    axis = f"{ends[0]}{' ' * between}{ends[1]}" if between > 0 else ""
    return [*lines, labelled("", (f"{'':{_SCALE_WIDTH}}{axis}", "dim"))]


def fates(moment: Moment, most: int) -> list[Text]:
    """Count attempts by status."""
    counts = moment.progress.chronicle.fates
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    if most < 2 or len(found) > most or not found:
        return [labelled("fates", fates_line(moment.progress.chronicle))]
    names = {fate: "repeated" if fate == DUPLICATE else fate.replace("_", " ") for fate, _ in found}
    wide, digits = max(map(len, names.values())), len(str(found[0][1]))
    room = max(1, moment.room - wide - digits - 2)
    bars = [round(min(_SHORT_BAR, room) * count / found[0][1]) for _, count in found]
    return [
        labelled(
            "" if number else "fates",
            f"{count:>{digits}} {names[fate]:<{wide}} ",
            ("█" * max(1, bar), _fate_style(fate)),
        )
        for number, ((fate, count), bar) in enumerate(zip(found, bars, strict=True))
    ]


def _fate_style(fate: str) -> str:
    if fate in CORRECT_FATES:
        return "green"
    return "dim" if fate in NO_FAILURES or fate == DUPLICATE else "red"


def model(moment: Moment, most: int) -> list[Text]:
    """Show the answers that are awaited, and the cost of the answers so far."""
    state, chronicle = moment.state, moment.progress.chronicle
    usage, budget = state.usage, state.settings.budget
    asked = moment.progress.questions
    calls = (
        f"{usage.calls} of {budget.max_calls:,} calls" if budget.max_calls else counted(usage.calls, "call", "calls")
    )
    limit = f" of {tokens_words(budget.max_tokens)}" if budget.max_tokens else ""
    tokens = f"{tokens_words(usage.tokens).removesuffix(' tokens') if limit else tokens_words(usage.tokens)}{limit}"
    cached = f"{usage.cached_tokens / usage.prompt_tokens:.0%} of prompts cached" if usage.cached_tokens else ""
    faults = chronicle.faults.total()
    flight: Part = (f"{asked} in flight", "cyan" if asked else "dim", 0)
    spend = spend_words(chronicle)
    if most >= 3:
        kinds = ", ".join(f"{count} {words}" for words, count in chronicle.faults.most_common(3))
        lines: list[list[Part]] = [[flight, (f", {calls}", "", 0)]]
        lines.append(
            [(tokens, "", 0), (f", {cached}" if cached else "", "dim", 1), (f", {spend}" if spend else "", "", 0)]
        )
        lines += [[(f"failed tries: {kinds}", "red", 0)]] if faults else []
        return _under("model", lines, moment)
    parts: list[Part] = [flight, (f", {calls}", "", 2), (f", {tokens}", "", 1), (f", {spend}" if spend else "", "", 0)]
    parts += [(f", {cached}" if cached else "", "", 4), (f", {faults} tries failed" if faults else "", "red", 3)]
    return [labelled("model", *fitting(parts, moment.room))]


def flight(moment: Moment, _most: int) -> list[Text]:
    """Count the work in flight by kind, and evaluations that no device has begun."""
    works = [work for node_id, found in moment.in_flight.items() if node_id != ROOT for work in found]
    counts = [(sum(work.verb == verb for work in works), verb) for verb in _VERBS]
    queue = moment.progress.queue
    queued = {"evaluating": f" ({queue} queued)" if queue else ""}
    said = [f"{count} {verb}{queued.get(verb, '')}" for count, verb in counts if count]
    said += [work_words(work) for work in moment.in_flight.get(ROOT, ())]
    return [labelled("flight", (", ".join(said) or "nothing", "cyan" if said else "dim"))]


def devices(moment: Moment, most: int) -> list[Text]:
    """Show the recent utilisation of each device."""
    uses = moment.progress.devices(moment.now)
    if not uses:
        return [labelled("devices", ("no verdict yet", "dim"))]
    if most < 2:
        shown = [
            (f"{', ' if at else ''}{shortened(use.name, _LONGEST_NAME)} {use.share:.0%} busy", "", at)
            for at, use in enumerate(uses)
        ]
        parts = fitting(shown, moment.room - (len(f" +{len(uses)}") if len(uses) > 1 else 0))
        more = f" +{len(uses) - len(parts)}" if len(parts) < len(uses) else ""
        return [labelled("devices", *parts, (more, "dim"))]
    listed = uses if len(uses) <= most else uses[: most - 1]
    wide = min(_LONGEST_NAME, max(Text(plain(use.name)).cell_len for use in listed))
    lines = [_device_line(moment, use, wide, label="" if at else "devices") for at, use in enumerate(listed)]
    if len(listed) < len(uses):
        rest = uses[len(listed) :]
        mean = sum(use.share for use in rest) / len(rest)
        lines.append(labelled("", (f"and {len(rest)} more, {mean:.0%} busy on average", "dim")))
    return lines


def _device_line(moment: Moment, use: DeviceUse, wide: int, *, label: str) -> Text:
    name = Text(shortened(use.name, wide))
    name.truncate(wide, pad=True)
    done = round(_SHARE_WIDTH * use.share)
    bar = Text.assemble(("█" * done, "cyan"), ("░" * (_SHARE_WIDTH - done), "dim"))
    said: list[Part] = [
        (f" {use.share:>4.0%} busy", "", 0),
        (f", {counted(use.verdicts, 'verdict', 'verdicts')}", "dim", 1),
        (f" of {use.mean_s:.1f} s", "dim", 2),
    ]
    line = Text.assemble(labelled(label), name, " ", bar)
    return line.append_text(Text.assemble(*fitting(said, moment.width - line.cell_len)))


def latest(moment: Moment, most: int) -> list[Text]:
    """List the latest attempts, the last one first; nothing if there is no space for a few."""
    tried = moment.progress.latest(most)
    return [_tried_line(moment, one, label="" if at else "latest") for at, one in enumerate(tried)]


def _tried_line(moment: Moment, tried: Tried, *, label: str) -> Text:
    attempt = tried.fact
    style = "green" if attempt.fate in CORRECT_FATES else "red"
    if attempt.speedup is not None:
        title = moment.state.node(tried.node_id).title
        said: tuple[str, ...] = (f"{attempt.speedup:>6.2f}x ", attempt.fate, plain(title))
    else:
        said = ("", plain(attempt.outcome or attempt.fate), "")
    number = (f"{attempt.round or '-':>4} ", "dim")
    worth, outcome, title = said
    return labelled(label, number, f"{tried.node_id:<4}", (worth, style), (outcome, style), (f"  {title}", "dim"))


def nodes(moment: Moment, shown: int) -> Text:
    """Count the tree's nodes by state."""
    counts = moment.progress.node_counts()
    said = ", ".join(f"{counts[state]} {state.replace('_', ' ')}" for state in _STATES if counts[state])
    total = counts.total()
    part = f"; {shown} shown" if shown < total else ""
    return labelled("tree", f"{counted(total, 'node', 'nodes')}{f': {said}' if said else ''}", (part, "dim"))


def footer(moment: Moment) -> Text:
    """Show how the run ends, or what it waits for."""
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


def _under(label: str, lines: Sequence[Sequence[Part]], moment: Moment) -> list[Text]:
    return [labelled("" if at else label, *fitting(parts, moment.room)) for at, parts in enumerate(lines)]


_NARROWEST_TITLE = 12
_EDGES = (("├─ ", "└─ ", "│  ", "   "), ("├", "└", "│", " "))
"""Edges of trees with enough space, and of deep trees in little space: branch, last branch, line, blank."""


def branch_lines(moment: Moment, most: int) -> list[Text]:
    """Return the lines of the nodes that fit, with their states in a column."""
    rows = chosen_rows(moment.state, most) if most > 0 else []
    if not rows:
        return []
    results, marks = _results(moment), marks_of(moment.state)
    standings = [_standing(moment, row.node, results.get(row.node.node_id, row.node.best)) for row in rows]
    right = min(max(standing.cell_len for standing in standings), moment.width // 2)
    glyphs = _EDGES[max(row.node.depth for row in rows) * len(_EDGES[0][0]) > moment.width // 3]
    heads = [_head(row, glyphs, marks.get(row.node.node_id, "")) for row in rows]
    left = min(max(head.cell_len for head in heads), max(_NARROWEST_TITLE, moment.width - right - 2))
    for head in heads:
        head.truncate(left, overflow="ellipsis", pad=True)
    return [Text.assemble(head, "  ", standing) for head, standing in zip(heads, standings, strict=True)]


def _head(row: Row, glyphs: tuple[str, str, str, str], mark: str) -> Text:
    style = "bold" if mark else "dim" if row.node.state == "pruned" else ""
    star = (f"{mark} " if mark else "", "yellow")
    return Text.assemble((row.edge(glyphs), "dim"), f"{row.node.node_id} ", star, (plain(row.node.title), style))


def _results(moment: Moment) -> dict[str, Score | None]:
    found: dict[str, Score | None] = {}
    for branch in moment.state.branches.values():
        known = found.get(branch.node_id, moment.state.node(branch.node_id).best)
        found[branch.node_id] = better(known, branch.best)
    return found


def _standing(moment: Moment, node: Node, result: Score | None) -> Text:
    parts = [_result(result)] if result is not None else []
    works = moment.in_flight.get(node.node_id, [])
    if works:
        more = f" +{len(works) - 1}" if len(works) > 1 else ""
        parts.append((work_words(works[0]) + more, "cyan"))
        if moment.is_wide:
            parts.append((f"V {node.priority:.2f}", "dim"))
    elif node.state == "pruned":
        parts.append(("pruned", "dim"))
    elif node.state == "open":
        parts.append((f"open, V {node.priority:.2f}", "dim"))
    if failed := _failures(node):
        parts.append((f"{failed} failed", "red"))
    return Text.assemble(*(piece for at, part in enumerate(parts) for piece in ((", ", part) if at else (part,))))


def _failures(node: Node) -> int:
    """Count failed attempts. A correct candidate is not one, nor an answer that declines."""
    return sum(count for fate, count in node.fates if fate not in NO_FAILURES | CORRECT_FATES)


def _result(score: Score) -> tuple[str, str]:
    if score.speedup is None:
        return ("correct" if score.credit is None else score_text(score.credit), "")
    worth = worth_text(score.credit, score.speedup, is_least=score.is_least)
    return (worth, "green" if (score.credit or 0.0) > 1.0 else "")


_FEWEST_TREE_ROWS = 3
_TWO_COLUMNS = 119
"""Width of two columns: a terminal of 120, of which the last column stays free."""
_FEWEST_ROWS_BESIDE = 14
_ROOMY_ROWS = 32
"""Rows from which on empty lines separate the figures."""
_FIGURES_WIDTH = (52, 66)
_RULE = " │ "

_FIGURES: tuple[Figure, ...] = (rounds, best, curve, flight, devices, model, fates, latest)
_BY_WEIGHT: tuple[object, ...] = (rounds, best, flight, header, model, nodes, fates, devices, curve, footer)
"""Figures by importance: with few rows only the first ones are shown."""
_GROWN: tuple[tuple[Figure, int], ...] = (
    (best, 4),
    (devices, 3),
    (model, 3),
    (curve, 7),
    (fates, 8),
    (devices, 9),
    (latest, 6),
    (curve, 9),
    (latest, 24),
)
"""Figures that get more lines where there is space, with their most lines; the first ones first."""


def frame_lines(progress: Progress, *, now: datetime, width: int, rows: int) -> list[Text]:
    """Return at most `rows` lines of at most `width` columns: figures, and the part of the tree that fits."""
    moment = Moment(progress=progress, now=now, width=width, in_flight=progress.in_flight(now))
    is_wide = width >= _TWO_COLUMNS and rows >= _FEWEST_ROWS_BESIDE
    lines = _beside(moment, rows) if is_wide else _stacked(moment, rows)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _stacked(moment: Moment, rows: int) -> list[Text]:
    kept = _BY_WEIGHT[: max(1, rows - _FEWEST_TREE_ROWS)]
    above = [header(moment)] if header in kept else []
    above += [line for figure in _FIGURES if figure in kept for line in figure(moment, 1)]
    tree = branch_lines(moment, rows - len(above) - (nodes in kept) - (footer in kept))
    title = [nodes(moment, len(tree))] if nodes in kept else []
    return [*above, *title, *tree, *([footer(moment)] if footer in kept else [])]


def _beside(moment: Moment, rows: int) -> list[Text]:
    fewest, most = _FIGURES_WIDTH
    left = min(most, max(fewest, 2 * moment.width // 5))
    right = moment.width - left - len(_RULE)
    tree = branch_lines(msgspec.structs.replace(moment, width=right, is_wide=True), rows - 3)
    tree = [nodes(moment, len(tree)), *tree]
    figures = _figure_lines(msgspec.structs.replace(moment, width=left, is_wide=True), rows - 2)
    lines = [header(moment)]
    for at in range(max(len(figures), len(tree))):
        line = figures[at] if at < len(figures) else Text("")
        line.truncate(left, overflow="ellipsis", pad=True)
        lines.append(Text.assemble(line, (_RULE, "dim"), tree[at] if at < len(tree) else ""))
    return [*lines, footer(moment)]


def _figure_lines(moment: Moment, rows: int) -> list[Text]:
    drawn = {figure: figure(moment, 1) for figure in _FIGURES if figure is not latest}
    between = len(drawn) if rows >= _ROOMY_ROWS else 0
    for figure, most in _GROWN:
        known = drawn.get(figure, [])
        spare = rows - between - sum(map(len, drawn.values()))
        if spare > 0:
            drawn[figure] = figure(moment, min(most, len(known) + spare))
    return _spaced([drawn[figure] for figure in _FIGURES if drawn.get(figure)], rows)


def _spaced(groups: Sequence[Sequence[Text]], rows: int) -> list[Text]:
    is_roomy = sum(map(len, groups)) + len(groups) - 1 <= rows
    lines: list[Text] = []
    for group in groups:
        lines += [*([Text("")] if lines and is_roomy else []), *group]
    return lines


_FRAME_S = 0.25
_LINES_ABOVE = 3
"""Rows that the frame leaves for the lines above it."""
_FEWEST_COLUMNS = 20
_FEWEST_ROWS = 4
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
"""Colour codes (SGR) of the words in the frame's styles."""
_NO_COLOURS = ("1", "2")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: terminals that support it show everything between these codes at once; others ignore them."""


def can_be_live(stream: TextIO) -> bool:
    """Return True if the stream is a terminal on which a frame can be drawn."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and _fits(_size(stream))


class LiveView:
    """A frame for people at a terminal; noteworthy lines scroll above it."""

    def __init__(self, plain: PlainView, stream: TextIO, *, leads: bool = True, slots: int | None = None) -> None:
        self._plain = plain
        self._progress = Progress(plain.chronicle, plain.narrator, leads=leads, slots=slots)
        self._canvas = Canvas(stream)
        self._above: list[str] = []
        self._drawn_for: tuple[int, int, os.terminal_size] | None = None
        """Record, second and size of the last frame; another frame for them would be the same."""

    def tell(self, record: Record) -> None:
        """Fold a record. The next frame shows it."""
        self._above.extend(self._progress.tell(record))
        self._above.extend(self._plain.opening_lines(record))

    def note(self, text: str) -> None:
        """Show a line above the frame."""
        self._above.append(text)

    async def show(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Draw a frame every `_FRAME_S` until cancelled, then remove it; lines above it stay."""
        task_status.started()
        try:
            while True:
                drawn = self.drawn()
                if drawn:
                    with anyio.CancelScope(shield=True):  # it holds lines that stay
                        await anyio.to_thread.run_sync(self._canvas.write, drawn)
                await anyio.sleep(_FRAME_S)
        except OSError:
            return  # the terminal is gone; the search goes on
        finally:
            self._canvas.close(self._taken())

    def finish(self, *, goes_on: bool = False) -> None:
        """Print the summary."""
        self._plain.finish(goes_on=goes_on)

    def drawn(self) -> str:
        """Return the codes that draw the current frame; empty if it equals the last one."""
        if self._plain.chronicle.started is None:
            return ""  # the first record is about to come
        size, now = self._canvas.size(), _now()
        drawn_for = (self._plain.chronicle.last_seq, int(now.timestamp()), size)
        if drawn_for == self._drawn_for and not self._above:
            return ""
        self._drawn_for = drawn_for
        rows = size.lines - 1
        rows -= min(_LINES_ABOVE, rows // 4)
        frame = frame_lines(self._progress, now=now, width=size.columns - 1, rows=max(1, rows))
        return self._canvas.draw(self._taken(), frame)

    def _taken(self) -> list[str]:
        above, self._above = self._above, []
        return above


class Canvas:
    """The area of a frame on a terminal: below all lines, with the cursor at the end of its last line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_colour = not os.environ.get("NO_COLOR")
        self._lengths: list[int] = []
        """Columns of each line on the screen."""
        self._shown = ""

    def size(self) -> os.terminal_size:
        """Return the terminal's current size."""
        return _size(self._stream)

    def draw(self, above: Sequence[str], frame: Sequence[Text]) -> str:
        """Return the codes that replace the last frame, with lines above it; empty if nothing changed."""
        shown = self._rendered([_harmless(line) for line in frame])
        if shown == self._shown and not above:
            return ""
        start = self._start()
        if above:
            start += "\x1b[J" + "".join(f"{one_line(line)}\n" for line in above)
        self._shown, self._lengths = shown, [line.cell_len for line in frame]
        return f"{_BEGIN}{start}{shown}\x1b[J{_END}"

    def write(self, text: str) -> None:
        """Write to the terminal."""
        self._stream.flush()
        unwritten = legible(text, self._stream).encode(self._stream.encoding, "replace")
        while unwritten:
            unwritten = unwritten[os.write(self._stream.fileno(), unwritten) :]

    def close(self, above: Sequence[str]) -> None:
        """Remove the frame and keep the lines; a closed terminal is ignored."""
        start = self._start()
        self._shown, self._lengths = "", []
        try:
            self.write(start + "\x1b[J" + "".join(f"{one_line(line)}\n" for line in above))
        except OSError:
            return

    def _rendered(self, frame: Sequence[Text]) -> str:
        return "\x1b[K\n".join(_painted(line, in_colour=self._in_colour) for line in frame)

    def _start(self) -> str:
        """Return the codes that move the cursor to the frame's first column and row.

        A terminal that was made narrower has wrapped its lines, so each is counted with its rows at the current width.
        """
        columns = max(1, self.size().columns)
        up = sum(max(1, -(-length // columns)) for length in self._lengths) - 1
        return f"\r\x1b[{up}A" if up > 0 else "\r"


def _harmless(line: Text) -> Text:
    plain = line.plain
    if plain.isprintable():
        return line
    return Text(one_line(plain), style=line.style, spans=line.spans, end=line.end)


def _painted(line: Text, *, in_colour: bool) -> str:
    """Return a line with its colour codes, as Rich's console would, in a tenth of the time."""
    pieces, at = [], 0
    for span in line.spans:  # in order, none over another: that is how the frame's lines are put together
        pieces.append(_styled(line.plain[at : span.start], line.style, in_colour=in_colour))
        pieces.append(_styled(line.plain[max(at, span.start) : span.end], span.style, in_colour=in_colour))
        at = max(at, span.end)
    pieces.append(_styled(line.plain[at:], line.style, in_colour=in_colour))
    return "".join(pieces)


def _styled(text: str, style: str | Style, *, in_colour: bool) -> str:
    codes = [_CODES[word] for word in str(style).split()] if text else []
    codes = codes if in_colour else [code for code in codes if code in _NO_COLOURS]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[m" if codes else text


def _now() -> datetime:
    return datetime.now(UTC)


def _size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        return os.terminal_size((80, 24))
    return size if size.columns and size.lines else os.terminal_size((80, 24))


def _fits(size: os.terminal_size) -> bool:
    return size.columns >= _FEWEST_COLUMNS and size.lines >= _FEWEST_ROWS
