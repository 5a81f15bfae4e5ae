"""What the page says of one run, section by section. Each takes a dossier and yields pieces of HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from ksearch_async.chronicle import Best, BestScore
from ksearch_async.comparing import plain
from ksearch_async.config import flatten
from ksearch_async.feed.shapes import AttemptView, ConfirmationView
from ksearch_async.kernel_table import TITLES, headline, kernel_rows, left_out
from ksearch_async.phrases import counted, duration
from ksearch_async.report.data import path_to_best
from ksearch_async.report.dossier import Dossier
from ksearch_async.report.markup import Child, Markup, tag
from ksearch_async.report.tables import definitions, table
from ksearch_async.spending import Spend
from ksearch_async.summary import (
    confirmations_line,
    expectations_line,
    fates_line,
    faults_line,
    state_line,
    workers_line,
)
from ksearch_async.versions import Version, diff_lines
from messages.verdicts import GOOD_FATES, Measured, Scored, score_text, worth_text

Section: TypeAlias = Callable[[Dossier], Iterator[Markup]]

_MOST_LINES, _LONGEST_LINE = 4000, 2000
"""Of a source or a diff: beyond that it is no page to read any more, and the file has it whole."""
_DIFF = {"+++": "file", "---": "file", "@@": "place", "+": "added", "-": "removed"}
"""How a line is set by how it begins, the longest first."""


def result_words(dossier: Dossier) -> str:
    """Say in a sentence what the run amounts to."""
    best = dossier.best
    if best is None:
        return "No candidate was correct and timed, or got a score."
    if isinstance(best, BestScore):
        initial = "" if best.initial_score is None else f"; the initial program has {score_text(best.initial_score)}"
        return f"The best program scores {score_text(best.score)}{initial}."
    low, high = best.speedup_interval
    against = f" against {best.reference_latency_us:.1f} us" if best.reference_latency_us is not None else ""
    slower = "" if best.faster else " That is not faster than the reference."
    return (
        f"The best kernel is {best.speedup_vs_reference:.2f}x as fast as the reference (95 % interval {low:.2f} to "
        f"{high:.2f}): {best.latency_us:.1f} us{against}{best.roofline_words}.{slower}"
    )


def summary(dossier: Dossier) -> Iterator[Markup]:
    """What the run is, how it ended, and what it took."""
    chronicle, trace = dossier.chronicle, dossier.entrant.trace
    head, totals = trace.head, trace.totals
    yield tag("p", result_words(dossier), class_="result")
    baseline = f"{trace.baseline[0]}: {trace.baseline[1]:.2f}x the reference, beside the best" if trace.baseline else ""
    yield definitions(
        [
            ("run", head.run_id),
            ("task", f"{head.task} ({head.task_id})"),
            ("device", head.device),
            ("written in", head.language),
            ("models", dossier.entrant.traits["model"]),
            ("baseline", baseline),
            ("found by", " > ".join(dossier.best.found_by) if dossier.best else ""),
            ("state", state_line(chronicle, in_use=dossier.in_use)),
            ("rounds", f"{totals.rounds} of {head.max_rounds} in {duration(totals.elapsed_s)}"),
            ("attempts", fates_line(chronicle)),
            ("confirmed", confirmations_line(chronicle)),
            ("expected", expectations_line(chronicle.state)),
            ("processes", workers_line(chronicle)),
            ("endpoint", faults_line(chronicle)),
            ("begun", f"{head.started_at[:19].replace('T', ' ')} UTC"),
        ]
    )


def kernel(dossier: Dossier) -> Iterator[Markup]:
    """The best kernel's files, and what changed in them from what they were started from."""
    best = dossier.kernel
    if best is None:
        yield tag("p", "There is none.")
        return
    yield tag("p", f"Candidate {best.candidate_id}: {best.said}.", class_="note")
    for file in best.candidate.files:
        yield tag("p", tag("code", file.path))
        yield tag("pre", tag("code", "\n".join(_bounded(file.text.splitlines()))))
    if dossier.base is not None and dossier.base.candidate_id != best.candidate_id:
        yield tag("p", f"Against what it was started from, candidate {dossier.base.candidate_id}: {dossier.base.said}.")
        yield tag("pre", tag("code", _coloured(dossier.base, best)))


def _coloured(older: Version, newer: Version) -> Iterator[Child]:
    for line in _bounded(list(diff_lines(older, newer))):
        kind = next((kind for start, kind in _DIFF.items() if line.startswith(start)), "")
        yield tag("span", line, class_=kind) if kind else line
        yield "\n"


def _bounded(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines, of more and longer ones than anybody reads only the beginning."""
    for line in lines[:_MOST_LINES]:
        rest = len(line) - _LONGEST_LINE
        yield line if rest <= 0 else f"{line[:_LONGEST_LINE]}… ({rest:,} more characters)"
    if len(lines) > _MOST_LINES:
        yield f"… ({len(lines) - _MOST_LINES:,} more lines)"


def measurement(dossier: Dossier) -> Iterator[Markup]:
    """How the best kernel was checked and timed, behind which walls, and how far confirmations moved others."""
    done = dossier.evaluation
    if done is None:
        yield tag("p", "Nothing was measured that counts.")
        return
    verdict = done.verdict
    pairs: list[tuple[str, Child]] = [
        ("purpose", "a second, confirming measurement" if done.purpose == "confirm" else "its only measurement"),
        ("device", f"{done.device} {done.unit}".strip()),
        ("isolation", ", ".join(done.isolation) or "not recorded"),
        ("took", f"{done.wall_s:.1f} s, {done.lease_s:.1f} s of it alone on the device"),
    ]
    if isinstance(verdict, Measured):
        yield from _timing(verdict, dossier)
        pairs.extend(_checks(verdict))
    elif isinstance(verdict, Scored):
        pairs.extend((f"metric {name}", str(value)) for name, value in verdict.metrics.items())
        pairs.extend(("note", note) for note in verdict.notes)
    yield definitions(pairs)
    if isinstance(verdict, Measured) and verdict.workloads:
        titles = ["workload", "speedup", "95 % interval", "latency us", "reference us", "pairs"]
        rows = [
            [
                one.name,
                f"{one.speedup_vs_reference:.2f}x",
                f"[{one.speedup_interval.low:.2f}, {one.speedup_interval.high:.2f}]",
                f"{one.latency_us:.1f}",
                f"{one.reference_latency_us:.1f}",
                str(one.pairs),
            ]
            for one in verdict.workloads
        ]
        yield table(titles, rows, numbers=range(1, 6))
    if isinstance(verdict, Measured):
        yield from _profile(verdict)


def _profile(verdict: Measured) -> Iterator[Markup]:
    """What the GPU does in a call, if that was recorded."""
    for one in verdict.profile:
        yield tag("p", f"What the GPU does in a call: {headline(one)}.")
        yield table(TITLES, kernel_rows(one), numbers=range(len(TITLES) - 2))
        if rest := left_out(one):
            yield tag("p", rest, class_="note")
    if verdict.profile:
        yield tag("p", "The kernel's own process recorded that; nothing above rests on it.", class_="note")


def _timing(verdict: Measured, dossier: Dossier) -> Iterator[Markup]:
    best = dossier.best
    if not isinstance(best, Best) or verdict.speedup_interval is None:
        return
    turns = f", {counted(verdict.pairs, 'pair', 'pairs')} in all" if verdict.pairs else ""
    yield tag(
        "p",
        f"Candidate and reference were called by turns{turns}. The speedup is the median over blocks of two pairs, of "
        "the reference's latency over the candidate's; the interval is the median's, at 95 %. What counts, for the "
        "search and in comparisons, is its lower end."
        + (" Over several workloads these are geometric means." if verdict.workloads else ""),
    )
    rows = [
        ["reference", _us(verdict.reference_latency_us), "1.00x", ""],
        [
            "best kernel",
            _us(verdict.latency_us),
            f"{verdict.speedup_vs_reference:.3f}x",
            f"[{verdict.speedup_interval.low:.3f}, {verdict.speedup_interval.high:.3f}]",
        ],
    ]
    if verdict.baseline and verdict.speedup_vs_baseline is not None and verdict.baseline_interval is not None:
        interval = f"[{verdict.baseline_interval.low:.3f}, {verdict.baseline_interval.high:.3f}]"
        rows.insert(1, [verdict.baseline, _us(verdict.baseline_latency_us), "", ""])
        rows.append([f"best kernel over {verdict.baseline}", "", f"{verdict.speedup_vs_baseline:.3f}x", interval])
    yield table(["program", "median latency", "speedup", "95 % interval"], rows, numbers=(1, 2, 3))
    if best.screen_speedup is not None:
        yield tag("p", f"Its first measurement had said {best.screen_speedup:.2f}x.", class_="note")


def _checks(verdict: Measured) -> Iterator[tuple[str, Child]]:
    worst = max(verdict.checks, key=lambda check: check.error_ratio, default=None)
    if worst is not None:
        calls = counted(len(verdict.checks), "call", "calls")
        families = ", ".join(dict.fromkeys(check.family for check in verdict.checks))
        yield "checked", f"{calls} on fresh inputs, expected values in {verdict.reference_dtype}; inputs: {families}"
        yield "largest error", f"{worst.error_ratio:.3g} of what the tolerance allows ({worst.family})"
    yield (
        "latency",
        "of the device's work, launches hidden" if verdict.measure == "device" else "of a call as users make it",
    )
    if verdict.deterministic is not None:
        yield "same bits", "twice on the same inputs" if verdict.deterministic else "not twice on the same inputs"
    yield "flags", ", ".join(verdict.flags)
    yield from (("note", note) for note in verdict.notes)


def _us(latency_us: float | None) -> str:
    return "" if latency_us is None else f"{latency_us:.1f} us"


def actions(dossier: Dossier) -> Iterator[Markup]:
    """The tree as a table: every action with what came of it."""
    trace = dossier.entrant.trace
    way = set(path_to_best(trace))
    rows: list[list[Child]] = []
    for node in sorted(trace.nodes.values(), key=lambda node: int(node.node_id[1:])):
        if not node.parent_id:
            continue
        best = node.best
        worth = worth_text(best.credit, best.speedup, is_least=best.is_least) if best else ""
        failed = ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in node.fates if fate not in GOOD_FATES)
        state = f"{node.state.replace('_', ' ')}{', forbidden' if node.forbidden else ''}"
        title = tag("b", node.title) if node.node_id in way else node.title
        rows.append([node.node_id, node.parent_id, title, state, worth, str(node.rounds), failed])
    yield table(["action", "below", "what is tried", "state", "best", "rounds", "other outcomes"], rows, numbers=(4, 5))
    if way:
        yield tag("p", "Those that the best kernel was built on are bold.", class_="note")


def attempts(dossier: Dossier) -> Iterator[Markup]:
    """Every attempt in the order in which its outcome was known."""
    trace = dossier.entrant.trace
    best_id = trace.totals.best_id
    rows: list[list[Child]] = []
    for tried in trace.tried:
        attempt = tried.attempt
        is_best = bool(best_id) and attempt.candidate_id == best_id
        outcome = attempt.outcome.removeprefix(f"{attempt.fate}: ")
        again = trace.confirmed.get(attempt.candidate_id)
        if again is not None and attempt.round:
            outcome = f"screening said {outcome}; {_confirmation_words(again)}"
        fate = tag("span", _fate_words(attempt), class_=_fate_kind(attempt))
        rows.append(
            [
                str(attempt.round or ""),
                duration(tried.at.seconds),
                attempt.node_id,
                fate,
                tag("b", f"{outcome} (the best)") if is_best else outcome,
                tag("code", attempt.candidate_id[:8]),
            ]
        )
    yield table(["round", "after", "action", "fate", "outcome", "candidate"], rows, numbers=(0, 1))


def _confirmation_words(again: ConfirmationView) -> str:
    if again.fate == "measured":
        return f"confirmed: {again.outcome.removeprefix('measured: ')}"
    return f"not confirmed: {again.outcome}"


def _fate_words(attempt: AttemptView) -> str:
    return "repeated" if attempt.repeats_known else attempt.fate.replace("_", " ")


def _fate_kind(attempt: AttemptView) -> str:
    if attempt.repeats_known or attempt.fate in ("declined", "outpaced", "unstable", "lost"):
        return "idle"
    return "good" if attempt.fate in GOOD_FATES else "bad"


def costs(dossier: Dossier) -> Iterator[Markup]:
    """What the models cost."""
    spending = dossier.spending
    titles = ["role", "model", "calls", "prompt tokens", "of them cached", "completion tokens", "dollars"]
    rows = [[role, model or "-", *_spend(spend)] for (role, model), spend in spending.by_model.items()]
    total = spending.of_role("planner").plus(spending.of_role("coder"))
    yield table(titles, [*rows, ["both", "", *_spend(total)]], numbers=range(2, 7))
    if total.known_usd is None:
        yield tag("p", "Not all prices are known: tokens only.", class_="note")


def _spend(spend: Spend) -> list[str]:
    usage = spend.usage
    dollars = "-" if spend.known_usd is None else f"${spend.known_usd:.4f}"
    tokens = (usage.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return [*(f"{number:,}" for number in tokens), dollars]


def environment(dossier: Dossier) -> Iterator[Markup]:
    """What it ran on, and with which settings; all of them, so that nothing is left to defaults of another release."""
    target, state = dossier.started.target, dossier.chronicle.state
    settings = state.settings if state.run_id else dossier.started.settings
    cpu = msgspec.to_builtins(target.cpu) if target.cpu else {}
    told = {"device": target.device, "architecture": target.arch, "march": target.march, "toolchain": target.toolchain}
    told |= {f"cpu {name}": str(value) for name, value in cpu.items() if value}
    yield definitions(told.items())
    task = dossier.started.task
    values: dict[str, object] = {"seed": dossier.started.seed, "tolerance": task.tolerance.profile}
    values |= {f"rules.{name}": value for name, value in flatten(msgspec.to_builtins(task.rules))}
    values |= dict(flatten(msgspec.to_builtins(settings)))
    yield table(["setting", "value"], [[tag("code", name), plain(value)] for name, value in values.items()])


def reproduction(dossier: Dossier) -> Iterator[Markup]:
    """What to type to have it again."""
    yield tag("p", "The same search again; what it finds depends on what it measures and on what the models answer:")
    yield tag("pre", tag("code", dossier.commands[0]), class_="command")
    if dossier.unsaid:
        yield tag("p", "with this in its configuration file (-c):")
        yield tag("pre", tag("code", "\n".join(dossier.unsaid)), class_="command")
    if not dossier.has_config:
        note = "Made of the journal alone, which knows no endpoints and no paths."
        yield tag("p", note, class_="note")
    yield tag(
        "p", "Its decisions again, from its journal, without a model and without a device; and the best once more:"
    )
    yield tag("pre", tag("code", "\n".join(dossier.commands[1:])), class_="command")


SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("kernel", "The best kernel", kernel),
    ("measurement", "How it was measured", measurement),
    ("actions", "Actions", actions),
    ("attempts", "Attempts", attempts),
    ("costs", "Costs", costs),
    ("environment", "Environment and settings", environment),
    ("reproduction", "To reproduce", reproduction),
)
"""Identifier, title and what makes it, in the order of the page; summary and figures stand before them."""
