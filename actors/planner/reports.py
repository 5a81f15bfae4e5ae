"""What the planner's model is told about finished branches, and about closed nodes without children. Pure text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from actors.planner.core.beliefs import gain_of
from actors.planner.core.state import Attempt, Incumbent, Node, Report, Score, SearchState
from actors.planner.diffs import diff_line
from evaluators.hardware.roofline import Roofline, share_text
from messages.tasks import Candidate
from messages.verdicts import GOOD_FATES, Fate, score_text, worth_text

_ATTEMPTS_SHOWN = 12
_OUTCOME_CHARS = 240
_EVIDENCE_SHOWN = 3

_ADVICE: dict[Fate, str] = {
    "did_not_build": "did not build: the idea was not tested. Say more precisely how to write it, or split it",
    "crashed": "crashed: indices, alignment or the contract. Re-scope it to something smaller, or name the pitfall",
    "wrong": "gave wrong results: ask for the numerical care it lacks, split off the risky part, or prune it",
    "timed_out": "did not end in time: a deadlock, or far too much work. Re-scope or prune it",
    "unusable": "brought no program: the action may be unclear or too large. Rewrite or split it",
    "declined": "brought nothing further: the action is carried out as far as the coder sees",
    "rejected": "broke a rule: rewrite it so that it needs nothing that is forbidden, or prune it",
    "quarantined": "was too good to be true and waits for an audit: do not build on it",
    "unstable": "was correct, but could not be timed reliably: prefer ways with steady timing",
    "outpaced": "was correct but clearly slower: lower V of actions that rest on the same hope",
    "lost": "was lost by the infrastructure: that says nothing about the action",
}


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports of one call are told against."""

    scored: bool
    incumbent: Incumbent | None
    """As it was at that call."""
    programs: Callable[[str], Candidate | None]
    roofline: Roofline | None = None
    """Of the task on its device; None: unknown, or of several workloads each has its own."""


def report_section(telling: Telling, report: Report, node: Node) -> str:
    """Tell how a branch went: its action, its attempts by fate, and its best against parent, expectation and incumbent.

    Args:
        telling: what is known besides.
        report: the branch.
        node: its node, as it was when this was told first.
    """
    if report.refuted:
        return _refutation(node, report)
    ended = "extra sample of" if report.extra else "branch on"
    merged = f", merging {node.second_id} ({_score(report.second)})" if report.second is not None else ""
    lines = [
        f"# Finished {ended} {node.node_id}: {node.title}",
        "",
        node.description or node.title,
        "",
        f"It started from {node.parent_id} ({_base(telling, report.base)}){merged} and ended after "
        f"{len(report.attempts)} attempts: {report.reason}.",
        *_attempts(report.attempts),
        "",
        *(_gain(telling, report, report.best) if report.best is not None else ()),
        *_failures(report),
    ]
    return "\n".join(lines)


def _refutation(node: Node, report: Report) -> str:
    """Take back what was told of a candidate."""
    now = "has no correct candidate" if report.best is None else f"has this best candidate now: {_score(report.best)}"
    return (
        f"# A result of {node.node_id} that does not hold: {node.title}\n\n"
        f"Measured a second time, what was its best candidate failed: {_shortened(report.reason)}. The node {now}."
    )


def childless_section(state: SearchState, childless: tuple[str, ...]) -> str:
    """Ask once for children of closed nodes that have none open."""
    if not childless:
        return ""
    lines = [f"- {node_id}: {state.node(node_id).title} ({_score(state.node(node_id).best)})" for node_id in childless]
    return (
        "# Closed nodes without an open child\n\n"
        + "\n".join(lines)
        + "\n\nInsert a child where going on is worth it; you are asked about each node once."
    )


def _attempts(attempts: tuple[Attempt, ...]) -> list[str]:
    left_out = len(attempts) - _ATTEMPTS_SHOWN
    lines = [f"({left_out} earlier attempts are not shown)"] if left_out > 0 else []
    return [*lines, *(f"{attempt.number}. {_line(attempt)}" for attempt in attempts[-_ATTEMPTS_SHOWN:])]


def _line(attempt: Attempt) -> str:
    """Return an attempt's outcome, its other drafts briefly; a long one loses whole words at its end."""
    others = f" (of {len(attempt.others) + 1} drafts; others: {_others(attempt)})" if attempt.others else ""
    return _shortened(attempt.outcome or attempt.fate) + others


def _others(attempt: Attempt) -> str:
    counts = Counter(outcome.split(":")[0] for outcome in attempt.others)
    return ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in counts.items())


def _shortened(text: str) -> str:
    outcome = " ".join(text.split())
    if len(outcome) <= _OUTCOME_CHARS:
        return outcome
    return f"{outcome[:_OUTCOME_CHARS].rpartition(' ')[0]} …"


def _gain(telling: Telling, report: Report, best: Score) -> list[str]:
    lines = [f"Result: {_score(best)}."]
    incumbent = telling.incumbent
    is_best = incumbent is not None and incumbent.candidate_id == best.candidate_id
    if best.credit is not None and best.speedup is None and incumbent is not None:
        so_far = f"The best so far ({incumbent.node_id}) has score {score_text(incumbent.credit)}."
        lines.append("It is the best so far." if is_best else so_far)
    if best.credit is not None and best.speedup is not None:
        lines.append(_against_base(report, best))
        if incumbent is not None:
            ratio = best.speedup / (incumbent.speedup or 1.0)
            least = "at least " if best.is_least else ""
            versus = f"Against the best so far ({incumbent.node_id}): {least}{ratio:.2f} times as fast."
            lines.append("It is the best so far." if is_best else versus)
    if best.latency_us is not None and telling.roofline is not None:
        lines.append(f"Its {best.latency_us:.2f} us are {share_text(telling.roofline, best.latency_us)}.")
    lines += [f"- {line}" for line in _evidence(report, best.candidate_id)]
    if (changed := _changed(telling, report, best)) is not None:
        lines.append(f"Changed against its base: {changed}.")
    return lines


def _against_base(report: Report, best: Score) -> str:
    base = report.base.speedup if report.base is not None and report.base.speedup else 1.0
    found = gain_of(best, report.base)
    times = f"{'at least ' if best.is_least else ''}{(best.speedup or 0.0) / base:.2f} times as fast"
    interval = f" [{found.interval.low:.2f}, {found.interval.high:.2f}]" if found is not None else ""
    expected = f"; {report.expected_gain:.2f} was expected" if report.expected_gain is not None else ""
    return f"Against its parent ({base:.2f}x): {times}{interval}{expected}."


def _evidence(report: Report, candidate_id: str) -> tuple[str, ...]:
    found = [attempt.evidence for attempt in report.attempts if attempt.candidate_id == candidate_id]
    return found[-1] if found else ()


def _changed(telling: Telling, report: Report, best: Score) -> str | None:
    before = telling.programs(report.base.candidate_id) if report.base is not None else None
    after = telling.programs(best.candidate_id)
    return diff_line(before, after) if before is not None and after is not None else None


def _failures(report: Report) -> list[str]:
    """Say how attempts failed, class by class, with what is known of the latest of each."""
    best_id = report.best.candidate_id if report.best is not None else ""
    others = [attempt for attempt in report.attempts if attempt.candidate_id != best_id]
    fates = Counter(attempt.fate for attempt in others if attempt.fate not in GOOD_FATES)
    if not fates:
        return []
    failed = report.best is None
    lines = ["This branch failed: it has no correct candidate."] if failed else ["Of its other attempts:"]
    for fate, count in fates.most_common():
        lines.append(f"- {count} of {len(report.attempts)} {_ADVICE.get(fate, fate)}.")
        latest = next(attempt for attempt in reversed(others) if attempt.fate == fate)
        lines += [f"  {line}" for line in latest.evidence[:_EVIDENCE_SHOWN]]
    if failed:
        lines.append("Lower its V, split it, rewrite it, or prune it; as it stands it would fail again.")
    return lines


def _base(telling: Telling, base: Score | None) -> str:
    return "the initial program, not yet scored" if base is None and telling.scored else _score(base)


def _score(score: Score | None) -> str:
    if score is None:
        return "the reference, 1.00x"
    if score.speedup is None or score.credit is None:
        return worth_text(score.credit, score.speedup)
    if score.is_least:
        return f"at least {score.speedup:.2f}x, its time could not be told more exactly"
    return f"{score.speedup:.2f}x, credit {score.credit:.2f}"
