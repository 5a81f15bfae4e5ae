"""The figures of a frame of the live view: each is one line, or as many as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rich.text import Text

from actors.planner.core.state import NodeState
from ksearch_async.chronicle import DUPLICATE, Best, BestScore
from ksearch_async.cli.chart import chart_rows, sparkline
from ksearch_async.cli.moment import Moment, Part, fitting, labelled, work_words
from ksearch_async.phrases import counted, duration, plain, rough_duration, shortened, tokens_words
from ksearch_async.progress import Tried
from ksearch_async.summary import STOP_WORDS, fates_line, spend_words
from ksearch_async.utilisation import DeviceUse
from ksearch_async.workload_table import workload_span
from messages.base import ROOT
from messages.verdicts import CORRECT_FATES, NO_FAILURES, score_text

Figure: TypeAlias = Callable[[Moment, int], list[Text]]
"""Given how many lines it may take, at least 1, it returns as many or fewer; at least one, or none if it has nothing
to say."""

_BAR_WIDTH, _SHORT_BAR = 40, 24
_SHARE_WIDTH = 10
_LONGEST_NAME = 24
_CHART_ROWS = (4, 8)
"""The fewest that are worth it, and the most."""
_SCALE_WIDTH = 7
_NARROWEST_TASK = 8
_VERBS = ("writing", "building", "evaluating", "confirming")
_STATES: tuple[NodeState, ...] = ("in_flight", "open", "closed", "pruned")


def header(moment: Moment) -> Text:
    """Name task and device on the left; on the right how long it has been going and will be."""
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
    """Say how much of its rounds is used up."""
    state = moment.state
    total = state.settings.budget.max_rounds
    said = f" {state.rounds} of {total}"
    width = min(_BAR_WIDTH, moment.room - len(said))
    if width < 5:
        return [labelled("rounds", said.strip())]
    done = round(width * min(1.0, state.rounds / total))
    return [labelled("rounds", ("█" * done, "cyan"), ("░" * (width - done), "dim"), said)]


def best(moment: Moment, most: int) -> list[Text]:
    """Say what the incumbent is worth, by which interval, and where it was found."""
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
    """Join what would be lines of their own; the last one, the place, gives way before what is said of the worth."""
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
    """Count attempts by what came of them."""
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
    """Say which answers are waited for, and what the answers so far took."""
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
    """Count what is under way, by kind, and of the evaluations those that no device has begun."""
    works = [work for node_id, found in moment.in_flight.items() if node_id != ROOT for work in found]
    counts = [(sum(work.verb == verb for work in works), verb) for verb in _VERBS]
    queue = moment.progress.queue
    queued = {"evaluating": f" ({queue} queued)" if queue else ""}
    said = [f"{count} {verb}{queued.get(verb, '')}" for count, verb in counts if count]
    said += [work_words(work) for work in moment.in_flight.get(ROOT, ())]
    return [labelled("flight", (", ".join(said) or "nothing", "cyan" if said else "dim"))]


def devices(moment: Moment, most: int) -> list[Text]:
    """Say how busy each device was lately."""
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
    """List the latest attempts, the last one first; nothing where there is no room for a few."""
    tried = list(moment.progress.latest)[-most:]
    return [_tried_line(moment, one, label="" if at else "latest") for at, one in enumerate(reversed(tried))]


def _tried_line(moment: Moment, tried: Tried, *, label: str) -> Text:
    attempt = tried.attempt
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
    """Say how it ends, or what it waits for."""
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
    """Return lines that stand under each other, behind one label."""
    return [labelled("" if at else label, *fitting(parts, moment.room)) for at, parts in enumerate(lines)]
