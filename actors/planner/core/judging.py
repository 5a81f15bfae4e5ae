"""From verdicts to outcomes: what an evaluation means for its draft, and for others that wrote the same.

What could not be timed well enough is correct. The same candidate is measured once more at once, as another round; if
that fails as well, it counts for what both measurements are sure of, and its branch goes on improving, not debugging.
"""

from __future__ import annotations

from actors.planner.core.branch import Branch, Draft
from actors.planner.core.budget import rounds_left
from actors.planner.core.confirming import present
from actors.planner.core.evidence import evidence_of
from actors.planner.core.state import Known, SearchState, active
from actors.planner.core.step import Step
from messages.facts import AttemptFinished, BuildRequested, EvaluationRequested
from messages.verdicts import (
    CORRECT_FATES,
    Measured,
    Outpaced,
    Unstable,
    Verdict,
    credit_of,
    fate_of,
    outcome_line,
)


def judge(step: Step, request: BuildRequested | EvaluationRequested, verdict: Verdict, *, lease_s: float = 0.0) -> None:
    """Finish the draft that was evaluated and those that wrote the same, or have its time measured again."""
    branch = step.state.branches[request.branch_id]
    draft = branch.draft(request.draft)
    known = _known(step.state, request.candidate_id, verdict)
    round_number = step.state.rounds + 1
    if isinstance(request, EvaluationRequested) and _is_measured_again(step.state, request, verdict):
        finish(step, branch, draft, known, round_number=round_number, lease_s=lease_s, measured_again=True)
        step.take(_once_more(step, request))
        return
    build_facts = request.build_facts if isinstance(request, EvaluationRequested) else ()
    evidence = (*evidence_of(verdict), *build_facts)
    finish(step, branch, draft, known, round_number=round_number, lease_s=lease_s, evidence=evidence)
    artifact_id = request.artifact_id if isinstance(request, EvaluationRequested) else None
    present(step, known, branch.node_id, artifact_id=artifact_id)
    finish_awaiting(step, known)


def finish_awaiting(step: Step, known: Known) -> None:
    """Finish the drafts that await what another draft's evaluation says of their candidate."""
    for branch in active(step.state):
        for draft in branch.drafts:
            if draft.awaiting and draft.candidate_id == known.candidate_id:
                finish(step, step.state.branches[branch.branch_id], draft, known)


def finish(
    step: Step,
    branch: Branch,
    draft: Draft,
    known: Known,
    *,
    round_number: int = 0,
    lease_s: float = 0.0,
    measured_again: bool = False,
    evidence: tuple[str, ...] = (),
) -> None:
    """Say what a draft has come to. Without a round its candidate was known, or another's evaluation counts for it."""
    step.take(
        AttemptFinished(
            branch_id=branch.branch_id,
            candidate_id=known.candidate_id,
            fate=known.fate,
            outcome=known.outcome,
            credit=known.credit,
            speedup=known.speedup,
            speedup_high=known.speedup_high,
            latency_us=known.latency_us,
            round=round_number,
            improved=not measured_again and _improves(branch, known),
            lease_s=lease_s,
            draft=draft.number,
            measured_again=measured_again,
            evidence=evidence,
        )
    )


def may_be_retried(known: Known) -> bool:
    """Say whether a candidate that was evaluated may be evaluated once more when it is written again."""
    return known.fate == "timed_out" and known.evaluations == 1 and not known.confirmed


def is_under_way(state: SearchState, candidate_id: str) -> bool:
    """Say whether a candidate is being built or evaluated for a branch just now."""
    return any(draft.candidate_id == candidate_id for branch in state.branches.values() for draft in branch.drafts)


def _is_measured_again(state: SearchState, request: EvaluationRequested, verdict: Verdict) -> bool:
    """Say whether a candidate's time is worth another round: once, and not if that would be one too many."""
    is_first = request.candidate_id not in state.known
    return isinstance(verdict, Unstable) and is_first and not state.ending and rounds_left(state) > 0


def _once_more(step: Step, request: EvaluationRequested) -> EvaluationRequested:
    return EvaluationRequested(
        job_id=step.job_id("e"),
        branch_id=request.branch_id,
        candidate_id=request.candidate_id,
        artifact_id=request.artifact_id,
        keep_above=request.keep_above,
        draft=request.draft,
        build_facts=request.build_facts,
    )


def _known(state: SearchState, candidate_id: str, verdict: Verdict) -> Known:
    """Return what is known of a candidate once it was evaluated."""
    credit, speedup, high, latency_us = credit_of(verdict), None, None, None
    if isinstance(verdict, Measured):
        speedup, latency_us = verdict.speedup_vs_reference, verdict.latency_us
        high = verdict.speedup_interval.high if verdict.speedup_interval is not None else None
    elif isinstance(verdict, Outpaced):
        interval = verdict.speedup_interval
        credit, speedup, high = interval.low, (interval.low + interval.high) / 2, interval.high
    elif isinstance(verdict, Unstable) and verdict.speedup_interval.high > 0:
        # Of an interval so wide neither the middle nor the upper end says anything about the candidate.
        credit = speedup = verdict.speedup_interval.low
        high = verdict.speedup_interval.high
    known = Known(
        candidate_id=candidate_id,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        credit=credit,
        speedup=speedup,
        speedup_high=high,
        latency_us=latency_us,
    )
    before = state.known.get(candidate_id)
    return _least(before, known) if before is not None and known.fate == before.fate == "unstable" else known


def _least(first: Known, second: Known) -> Known:
    """Return what two measurements that told little are sure of: the better of them is never what counts."""
    slower = min(first, second, key=lambda known: known.credit or 0.0)
    return Known(
        candidate_id=second.candidate_id,
        fate=second.fate,
        outcome=f"{second.outcome} (measured twice)",
        credit=slower.credit,
        speedup=slower.speedup,
        speedup_high=slower.speedup_high,
    )


def _improves(branch: Branch, known: Known) -> bool:
    """Say whether a candidate is better than the branch's best by more than the measurement's interval."""
    if known.fate not in CORRECT_FATES:
        return False
    if branch.best is None:
        return True
    bar = branch.best.credit if branch.best.speedup is None else branch.best.speedup
    return (known.credit or 0.0) > (bar or 0.0)
