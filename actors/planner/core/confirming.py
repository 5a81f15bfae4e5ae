"""When a candidate is measured again, and what follows: only a confirmed one becomes the incumbent of timed candidates.

Of many measurements the best is one that chance favoured. So a candidate whose screening is better than the incumbent
is provisional: in a fresh process, on fresh data and in more pairs it is measured once more, and what that says
replaces what the screening said, in either direction. The rules:

1. One confirmation at a time, the best provisional candidate first: what is then seen to be no better is spared.
2. It is no round. While confirmations have more than `SHARE` of the time for which candidates were timed, the next one
   waits; so does what is no faster than the reference. What could end the run by reaching its target does not wait.
3. Before a run ends by its budget, or because nothing is left to try, what is still provisional is confirmed. A run
   that is stopped leaves it for when it is resumed; so does one whose evaluators cannot do it.
4. A candidate is confirmed once. What is refuted (wrong, crashed, …) is no correct candidate any more; what cannot be
   timed well enough, or is outpaced, stays in the tree for no more than either measurement says.

Scores and candidates that are not timed need none: an evaluator that scores says what it repeats itself, and where
nothing is timed nothing is owed to chance.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.branch import Score
from actors.planner.core.state import Known, Provisional, SearchState
from actors.planner.core.step import Step
from messages.events import CandidateEvaluated
from messages.facts import (
    ConfirmationFinished,
    ConfirmationOwed,
    ConfirmationRequested,
    IncumbentChanged,
)
from messages.verdicts import (
    GOOD_FATES,
    REFUTING_FATES,
    Measured,
    Outpaced,
    Unstable,
    Verdict,
    credit_of,
    fate_of,
    outcome_line,
)

SHARE = 0.2
"""Of the time for which the timing lease was held: from here on confirmations wait."""


def surpasses(state: SearchState, credit: float) -> bool:
    """Say whether a credit is above the incumbent's."""
    return state.incumbent is None or credit > state.incumbent.credit


def present(step: Step, known: Known, node_id: str, *, artifact_id: str | None) -> None:
    """Make a candidate with a credit the incumbent or provisional, if it is better than the incumbent.

    Args:
        step: the decision.
        known: the candidate, as it was just evaluated or is known.
        node_id: whose branch wrote it.
        artifact_id: what was evaluated; None: it was evaluated before.
    """
    if known.fate not in GOOD_FATES or known.credit is None or not surpasses(step.state, known.credit):
        return
    if known.speedup is None or not step.state.settings.confirm:
        step.take(
            IncumbentChanged(
                candidate_id=known.candidate_id,
                node_id=node_id,
                round=step.state.rounds,
                credit=known.credit,
                speedup=known.speedup,
                latency_us=known.latency_us,
            )
        )
    elif artifact_id is not None:
        step.take(
            ConfirmationOwed(
                candidate_id=known.candidate_id,
                node_id=node_id,
                artifact_id=artifact_id,
                round=step.state.rounds,
                credit=known.credit,
                speedup=known.speedup,
                latency_us=known.latency_us,
            )
        )


def confirm(step: Step) -> None:
    """Have the best provisional candidate measured again, if its turn has come."""
    state = step.state
    if not state.provisional or state.confirming:
        return
    found = max(state.provisional.values(), key=lambda one: (one.credit, -one.round, one.candidate_id))
    if state.running and not _may_be_timed(state, found):
        return
    step.take(
        ConfirmationRequested(job_id=step.job_id("e"), candidate_id=found.candidate_id, artifact_id=found.artifact_id)
    )


def _may_be_timed(state: SearchState, found: Provisional) -> bool:
    target = state.settings.budget.target_speedup
    if target is not None and found.credit >= target:
        return True
    if found.credit <= 1.0:
        return False
    return state.confirm_s <= SHARE * (state.screen_s + state.confirm_s)


def conclude(step: Step, request: ConfirmationRequested, event: CandidateEvaluated) -> None:
    """Take in what a confirmation said."""
    conclude_with(step, request.job_id, request.candidate_id, event.verdict, lease_s=event.lease_s)


def conclude_with(step: Step, job_id: str, candidate_id: str, verdict: Verdict, *, lease_s: float = 0.0) -> None:
    """Take in what a confirmation, or the build for it, said. The better of two measurements is never what counts."""
    found = step.state.provisional[candidate_id]
    step.take(_finished(job_id, found, verdict, lease_s))
    credit = credit_of(verdict)
    if not isinstance(verdict, Measured) or credit is None or not surpasses(step.state, credit):
        return
    step.take(
        IncumbentChanged(
            candidate_id=candidate_id,
            node_id=found.node_id,
            round=found.round,
            credit=credit,
            speedup=verdict.speedup_vs_reference,
            latency_us=verdict.latency_us,
            screen_speedup=found.speedup,
        )
    )


def _finished(job_id: str, found: Provisional, verdict: Verdict, lease_s: float) -> ConfirmationFinished:
    worth = _worth(found, verdict)
    return ConfirmationFinished(
        job_id=job_id,
        candidate_id=found.candidate_id,
        node_id=found.node_id,
        round=found.round,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        screen_credit=found.credit,
        screen_speedup=found.speedup,
        credit=worth.credit if worth else None,
        speedup=worth.speedup if worth else None,
        speedup_high=worth.speedup_high if worth else None,
        latency_us=worth.latency_us if worth else None,
        lease_s=lease_s,
    )


def _worth(found: Provisional, verdict: Verdict) -> Score | None:
    """Return what a candidate counts for after its confirmation; None if it was refuted."""
    if fate_of(verdict) in REFUTING_FATES:
        return None
    screened = Score(
        candidate_id=found.candidate_id, credit=found.credit, speedup=found.speedup, latency_us=found.latency_us
    )
    if isinstance(verdict, Measured) and (credit := credit_of(verdict)) is not None:
        high = verdict.speedup_interval.high if verdict.speedup_interval is not None else None
        speedup, latency_us = verdict.speedup_vs_reference, verdict.latency_us
        return replace(screened, credit=credit, speedup=speedup, speedup_high=high, latency_us=latency_us)
    if isinstance(verdict, Unstable | Outpaced):
        interval = verdict.speedup_interval
        least = min(found.credit, interval.low), min(found.speedup, interval.high)
        return replace(screened, credit=least[0], speedup=least[1], speedup_high=interval.high)
    return screened
