"""What the planner's model is told about finished branches, and about closed nodes without children. Pure text."""

from __future__ import annotations

from collections import Counter

from actors.planner.core.state import Attempt, Report, Score, SearchState
from messages.verdicts import Fate, score_text, worth_text

_ATTEMPTS_SHOWN = 12
_OUTCOME_CHARS = 240

_ADVICE: dict[Fate, str] = {
    "did_not_build": "did not build: the idea was not tested. Say more precisely how to write it, or split it",
    "crashed": "crashed: indices, alignment or the contract. Re-scope it to something smaller, or name the pitfall",
    "wrong": "gave wrong results: ask for the numerical care it lacks, split off the risky part, or prune it",
    "timed_out": "did not end in time: a deadlock, or far too much work. Re-scope or prune it",
    "unusable": "brought no program: the action may be unclear or too large. Rewrite or split it",
    "declined": "brought nothing further: the action is carried out as far as the coder sees",
    "rejected": "broke a rule: rewrite it so that it needs nothing that is forbidden, or prune it",
    "quarantined": "was too good to be true and waits for an audit: do not build on it",
    "unstable": "could not be timed reliably: prefer ways with steady timing",
    "outpaced": "was correct but clearly slower: lower V of actions that rest on the same hope",
    "lost": "was lost by the infrastructure: that says nothing about the action",
}


def report_section(state: SearchState, report: Report) -> str:
    """Tell how a branch went: its action, its attempts by fate, and its best against parent and incumbent."""
    node = state.node(report.node_id)
    ended = "extra sample of" if report.extra else "branch on"
    lines = [
        f"# Finished {ended} {node.node_id}: {node.title}",
        "",
        node.description or node.title,
        "",
        f"It started from {node.parent_id} ({_base(state, report.base)}) and ended after {len(report.attempts)} "
        f"attempts: {report.reason}.",
        *_attempts(report.attempts),
        "",
    ]
    lines += _gain(state, report, report.best) if report.best is not None else _failure(report)
    return "\n".join(lines)


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
    """Return an attempt's outcome; a long one loses whole words at its end."""
    outcome = " ".join((attempt.outcome or attempt.fate).split())
    if len(outcome) <= _OUTCOME_CHARS:
        return outcome
    return f"{outcome[:_OUTCOME_CHARS].rpartition(' ')[0]} …"


def _gain(state: SearchState, report: Report, best: Score) -> list[str]:
    lines = [f"Result: {_score(best)}."]
    if best.credit is not None and best.speedup is None and state.incumbent is not None:
        is_best = state.incumbent.candidate_id == best.candidate_id
        so_far = f"The best so far ({state.incumbent.node_id}) has score {score_text(state.incumbent.credit)}."
        lines.append("It is the best so far." if is_best else so_far)
    if best.credit is not None and best.speedup is not None:
        base = report.base.speedup if report.base is not None and report.base.speedup else 1.0
        lines.append(f"Against its parent ({base:.2f}x): {best.speedup / base:.2f} times as fast.")
        if state.incumbent is not None and state.incumbent.candidate_id != best.candidate_id:
            ratio = best.speedup / (state.incumbent.speedup or 1.0)
            lines.append(f"Against the best so far ({state.incumbent.node_id}): {ratio:.2f} times as fast.")
        elif state.incumbent is not None:
            lines.append("It is the best so far.")
    return lines


def _failure(report: Report) -> list[str]:
    """Say that a branch brought no correct candidate, by the ways in which its attempts failed."""
    lines = ["This branch failed: it has no correct candidate."]
    fates = Counter(attempt.fate for attempt in report.attempts)
    for fate, count in fates.most_common():
        lines.append(f"- {count} of {len(report.attempts)} {_ADVICE.get(fate, fate)}.")
    lines.append("Lower its V, split it, rewrite it, or prune it; as it stands it would fail again.")
    return lines


def _base(state: SearchState, base: Score | None) -> str:
    return "the initial program, not yet scored" if base is None and state.scored else _score(base)


def _score(score: Score | None) -> str:
    if score is None:
        return "the reference, 1.00x"
    if score.speedup is None or score.credit is None:
        return worth_text(score.credit, score.speedup)
    return f"{score.speedup:.2f}x, credit {score.credit:.2f}"
