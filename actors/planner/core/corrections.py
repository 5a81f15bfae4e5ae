"""Confirmations as folds: what is provisional, and what a second measurement changes in all that rests on the first.

A confirmed candidate counts for what the second measurement said, wherever its screening was taken down: in the known
verdicts, in branches at work, in reports that nobody has read, in the tree. A refuted one is taken out of all of them.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.entries import drop, put, put_node
from actors.planner.core.lifecycle import folds_in
from actors.planner.core.state import (
    Attempt,
    Branch,
    Known,
    Node,
    Provisional,
    Report,
    Score,
    SearchState,
    better,
    is_confirmation,
)
from actors.planner.core.tree import settled
from messages.base import ROOT
from messages.facts import ConfirmationFinished, ConfirmationOwed
from messages.verdicts import CORRECT_FATES, GOOD_FATES


@folds_in(ConfirmationOwed)
def _owed(state: SearchState, fact: ConfirmationOwed) -> SearchState:
    provisional = Provisional(
        candidate_id=fact.candidate_id,
        node_id=fact.node_id,
        artifact_id=fact.artifact_id,
        round=fact.round,
        credit=fact.credit,
        speedup=fact.speedup,
        latency_us=fact.latency_us,
    )
    return put(state, "provisional", fact.candidate_id, provisional)


@folds_in(ConfirmationFinished)
def _finished(state: SearchState, fact: ConfirmationFinished) -> SearchState:
    state = drop(drop(state, "jobs", fact.job_id), "provisional", fact.candidate_id)
    before = state.known[fact.candidate_id]
    known = _corrected(before, fact)
    state = put(state, "known", known.candidate_id, known)
    state = replace(state, confirm_s=state.confirm_s + fact.lease_s, losses=0)
    for branch in list(state.branches.values()):
        state = put(state, "branches", branch.branch_id, _corrected_branch(branch, known))
    at_work = ((*branch.attempts, *branch.ended) for branch in state.branches.values())
    pending = [*at_work, *(report.attempts for report in state.reports)]
    was_told = not any(_holds(attempts, known) for attempts in pending)
    state = replace(state, reports=tuple(_corrected_report(report, known) for report in state.reports))
    for node in list(state.nodes.values()):
        if node.node_id != ROOT and node.best is not None and node.best.candidate_id == known.candidate_id:
            state = put_node(state, _corrected_node(state, node, known))
        elif node.base is not None and node.base.candidate_id == known.candidate_id:
            state = put_node(state, replace(node, base=_score(known) or Score(candidate_id=known.candidate_id)))
    if known.fate == before.fate:
        return state
    state = put_node(state, _recounted(state.node(known.node_id), before, known))
    return _with_news(state, fact, known) if was_told else state


def without_surpassed(state: SearchState, credit: float) -> SearchState:
    """Forget the provisional candidates that are no better than a new incumbent, even if all they said is true.

    The one that is being confirmed stays until its answer comes.
    """
    asked = {job.request.candidate_id for job in state.jobs.values() if is_confirmation(job.request)}
    for found in list(state.provisional.values()):
        if found.credit <= credit and found.candidate_id not in asked:
            state = drop(state, "provisional", found.candidate_id)
    return state


def _corrected(known: Known, fact: ConfirmationFinished) -> Known:
    """Return what is known of a candidate from now on."""
    if fact.credit is None:
        outcome = f"{fact.outcome} (in its confirmation; its screening said {fact.screen_speedup:.2f}x)"
        known = replace(known, fate=fact.fate, outcome=outcome, confirmed=True)
        return replace(known, credit=None, speedup=None, speedup_high=None, latency_us=None)
    outcome = fact.outcome if fact.fate in GOOD_FATES else f"{known.outcome}; in its confirmation {fact.outcome}"
    return replace(
        known,
        outcome=outcome,
        credit=fact.credit,
        speedup=fact.speedup,
        speedup_high=fact.speedup_high,
        latency_us=fact.latency_us,
        confirmed=True,
    )


def _score(known: Known) -> Score | None:
    if known.fate not in CORRECT_FATES:
        return None
    return Score(
        candidate_id=known.candidate_id,
        credit=known.credit,
        speedup=known.speedup,
        speedup_high=known.speedup_high,
        latency_us=known.latency_us,
    )


def _holds(attempts: tuple[Attempt, ...], known: Known) -> bool:
    return any(attempt.candidate_id == known.candidate_id for attempt in attempts)


def _corrected_attempts(attempts: tuple[Attempt, ...], known: Known) -> tuple[Attempt, ...]:
    return tuple(
        replace(
            attempt,
            fate=known.fate,
            outcome=known.outcome,
            credit=known.credit,
            speedup=known.speedup,
            speedup_high=known.speedup_high,
            latency_us=known.latency_us,
        )
        if attempt.candidate_id == known.candidate_id
        else attempt
        for attempt in attempts
    )


def _best_of(attempts: tuple[Attempt, ...]) -> Score | None:
    best: Score | None = None
    for attempt in attempts:
        best = better(best, attempt.score)
    return best


def _corrected_base(base: Score | None, known: Known) -> Score | None:
    return _score(known) if base is not None and base.candidate_id == known.candidate_id else base


def _corrected_branch(branch: Branch, known: Known) -> Branch:
    base, second = _corrected_base(branch.base, known), _corrected_base(branch.second, known)
    branch = replace(branch, base=base, second=second)
    if not _holds((*branch.attempts, *branch.ended), known):
        return branch
    attempts, ended = _corrected_attempts(branch.attempts, known), _corrected_attempts(branch.ended, known)
    return replace(branch, attempts=attempts, ended=ended, best=_best_of((*attempts, *ended)))


def _corrected_report(report: Report, known: Known) -> Report:
    base, second = _corrected_base(report.base, known), _corrected_base(report.second, known)
    report = replace(report, base=base, second=second)
    if not _holds(report.attempts, known):
        return report
    attempts = _corrected_attempts(report.attempts, known)
    return replace(report, attempts=attempts, best=_best_of(attempts))


def _corrected_node(state: SearchState, node: Node, known: Known) -> Node:
    """Return a node with its best corrected; if that was refuted, with its next best, or as one that failed."""
    if (score := _score(known)) is not None:
        return replace(node, best=score)
    best: Score | None = None
    for other in state.known.values():
        if other.node_id == node.node_id:
            best = better(best, _score(other))
    node = replace(node, best=best)
    if best is not None:
        return node
    node = replace(node, failures=node.failures + 1)
    return node if node.in_flight else settled(replace(node, spent=False), state.settings.max_tries)


def _recounted(node: Node, before: Known, known: Known) -> Node:
    """Return a node whose counts of fates say what an attempt has come to."""
    fates = dict(node.fates)
    fates[before.fate] = fates.get(before.fate, 1) - 1
    fates[known.fate] = fates.get(known.fate, 0) + 1
    return replace(node, fates=tuple((fate, count) for fate, count in fates.items() if count > 0))


def _with_news(state: SearchState, fact: ConfirmationFinished, known: Known) -> SearchState:
    """Have the planner's model told that what it was told is not so."""
    if state.settings.world_model != "evolving":
        return state
    attempt = Attempt(number=1, candidate_id=known.candidate_id, fate=known.fate, outcome=known.outcome)
    report = Report(
        branch_id=fact.job_id,
        node_id=known.node_id,
        reason=known.outcome,
        base=None,
        best=state.node(known.node_id).best,
        attempts=(attempt,),
        refuted=True,
    )
    return replace(state, reports=(*state.reports, report))
