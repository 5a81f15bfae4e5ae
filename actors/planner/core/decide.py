"""What follows from one event: the search, decision by decision. Begin reading here.

1. The planner's model analyses the task and hangs first actions under the root.
2. While there are free slots: the best frontier node (`selection`) gets a branch.
3. A branch asks a coder for a candidate, has it built, then evaluated, and asks again (debug, improve) until
   `stagnation_window` attempts in a row brought no improvement. Its best correct candidate is attached to the node.
4. Finished branches are reported to the planner's model, all that are waiting in one call; it revises the tree.
   Meanwhile the other branches go on. When open actions run short, the same call asks for more.
5. The run ends by its budget, by its target, or when neither the model nor the machine finds anything to try.

This module says what each event leads to; `supply` says what is begun after it. Neither reads a clock or draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from actors.planner.core.scripts import WHOLE, changes, conflicts, without_refused
from actors.planner.core.state import Branch, Known, Requested, SearchState, active, number_of
from actors.planner.core.step import Step
from actors.planner.core.supply import begin, drop_unpaid, resend, stop
from messages.edits import EditScript, Refusal
from messages.errors import ProtocolError
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ClockTicked,
    EditsProposed,
    Event,
    JobLost,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    CandidateAwaited,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    Fact,
    IncumbentChanged,
    InitialRequested,
    InitialScored,
    LossNoted,
    PlanAbandoned,
    PlanRequested,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
    WriteRequested,
)
from messages.verdicts import GOOD_FATES, DidNotBuild, Measured, Verdict, credit_of, fate_of, outcome_line

EventT = TypeVar("EventT", bound=Event)
_reactions: dict[type, Callable[[Step, Any], None]] = {}
_RETRIED_FATES = frozenset({"timed_out", "unstable"})
"""Verdicts that are not taken for granted: the same candidate may be evaluated once more."""


def decide(state: SearchState, event: Event) -> tuple[Fact, ...]:
    """Return the facts that follow from the event; none if it changes nothing (a repeated or a late result).

    Raises:
        ProtocolError: the event answers a job that was never asked for, or opens a search that is open.
    """
    step = Step(state)
    _reactions[type(event)](step, event)
    if step.facts or isinstance(event, RunResumed):
        begin(step)
    return tuple(step.facts)


def _reacts_to(kind: type[EventT]) -> Callable[[Callable[[Step, EventT], None]], None]:
    def register(reaction: Callable[[Step, EventT], None]) -> None:
        _reactions[kind] = reaction

    return register


@_reacts_to(RunStarted)
def _started(step: Step, event: RunStarted) -> None:
    if step.state.status != "new":
        raise ProtocolError(f"run {event.run_id!r} was started twice")
    step.take(
        SearchOpened(
            run_id=event.run_id,
            task_id=event.task.task_id,
            target=event.target,
            settings=event.settings,
            seed=event.seed,
            initial_id=event.initial.candidate_id if event.initial else None,
        )
    )


@_reacts_to(RunResumed)
def _resumed(step: Step, event: RunResumed) -> None:
    lost = step.state.questions
    step.take(SearchReopened(budget=event.budget or step.state.settings.budget, lost_calls=len(lost)))
    drop_unpaid(step)


@_reacts_to(StopRequested)
def _stop_requested(step: Step, event: StopRequested) -> None:
    if step.state.running:
        stop(step, "interrupted", event.reason)


@_reacts_to(ClockTicked)
def _ticked(step: Step, event: ClockTicked) -> None:
    if not step.state.finished and event.elapsed_s > step.state.elapsed_s:
        step.take(TimeNoted(elapsed_s=event.elapsed_s))


@_reacts_to(JobLost)
def _lost(step: Step, event: JobLost) -> None:
    if (request := _request(step.state, event.job_id)) is None:
        return
    step.take(LossNoted(job_id=event.job_id, error=event.error, permanent=event.permanent))
    is_hopeless = event.permanent or step.state.losses >= step.state.settings.max_lost
    if is_hopeless:
        stop(step, "infrastructure", event.error)
    if not (is_hopeless and step.state.ending):
        resend(step, request)


@_reacts_to(CandidateWritten)
def _written(step: Step, event: CandidateWritten) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, WriteRequested):
        return
    step.take(SpendRecorded(role="coder", usage=event.usage))
    branch = step.state.branches[request.branch_id]
    if event.candidate is None:
        fate, why = ("declined", event.declined) if event.declined else ("unusable", event.complaint)
        step.take(AttemptFinished(branch_id=branch.branch_id, candidate_id=None, fate=fate, outcome=f"{fate}: {why}"))
        return
    candidate_id = event.candidate.candidate_id
    known = step.state.known.get(candidate_id)
    if known is not None and not (known.fate in _RETRIED_FATES and known.evaluations == 1):
        _finish(step, branch, known, round_number=0)
    elif any(other.candidate_id == candidate_id for other in step.state.branches.values()):
        step.take(CandidateAwaited(branch_id=branch.branch_id, candidate_id=candidate_id))
    else:
        job_id = step.job_id("x")
        step.take(BuildRequested(job_id=job_id, branch_id=branch.branch_id, candidate_id=candidate_id))


@_reacts_to(CandidateBuilt)
def _built(step: Step, event: CandidateBuilt) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, BuildRequested):
        return
    match event.outcome:
        case DidNotBuild() as verdict:
            _judge(step, request.branch_id, request.candidate_id, verdict)
        case Built(artifact_id=artifact_id):
            step.take(
                EvaluationRequested(
                    job_id=step.job_id("e"),
                    branch_id=request.branch_id,
                    candidate_id=request.candidate_id,
                    artifact_id=artifact_id,
                )
            )


@_reacts_to(CandidateEvaluated)
def _evaluated(step: Step, event: CandidateEvaluated) -> None:
    request = _request(step.state, event.job_id)
    match request:
        case EvaluationRequested():
            _judge(step, request.branch_id, request.candidate_id, event.verdict)
        case InitialRequested():
            _judge_initial(step, request, event.verdict)
        case _:
            pass


@_reacts_to(EditsProposed)
def _proposed(step: Step, event: EditsProposed) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, PlanRequested):
        return
    step.take(SpendRecorded(role="planner", usage=event.usage))
    if event.script is None:
        _refuse(step, request, (Refusal(index=WHOLE, reason=event.complaint),))
        return
    limit = max(step.state.settings.max_new_nodes, request.wanted)
    refusals = conflicts(step.state, event.script, limit=limit)
    if refusals and request.tries < step.state.settings.refusals:
        _refuse(step, request, refusals)
    else:
        _apply(step, request, event.script, refusals, limit)


def _refuse(step: Step, request: PlanRequested, refusals: tuple[Refusal, ...]) -> None:
    """Refuse a script as a whole and ask again, or give this call up."""
    if request.tries >= step.state.settings.refusals:
        step.take(PlanAbandoned(job_id=request.job_id, reason=refusals[0].reason))
        return
    step.take(EditsRefused(job_id=request.job_id, refusals=refusals))
    resend(step, request, refusals=refusals)


def _apply(step: Step, request: PlanRequested, script: EditScript, refusals: tuple[Refusal, ...], limit: int) -> None:
    kept = without_refused(script, refusals, limit=limit)
    told = {refusal.index for refusal in refusals}
    dependent = tuple(
        Refusal(index=index, reason="depends on a refused edit, or is one too many")
        for index in range(len(script.edits))
        if index not in kept and index not in told
    )
    step.take(
        EditsApplied(
            job_id=request.job_id,
            changes=changes(step.state, [script.edits[index] for index in kept]),
            refusals=refusals + dependent,
            summary=script.summary,
            open_questions=script.open_questions,
        )
    )


def _judge(step: Step, branch_id: str, candidate_id: str, verdict: Verdict) -> None:
    """Finish the attempt of the branch that had it evaluated, and of those that wrote the same."""
    measured = verdict if isinstance(verdict, Measured) else None
    known = Known(
        candidate_id=candidate_id,
        fate=fate_of(verdict),
        outcome=outcome_line(verdict),
        credit=credit_of(verdict),
        speedup=measured.speedup_vs_reference if measured else None,
        latency_us=measured.latency_us if measured else None,
    )
    _finish(step, step.state.branches[branch_id], known, round_number=step.state.rounds + 1)
    for branch in active(step.state):
        if branch.awaiting and branch.candidate_id == candidate_id:
            _finish(step, branch, known, round_number=0)


def _judge_initial(step: Step, request: InitialRequested, verdict: Verdict) -> None:
    """Give the root its score. Without one nothing that follows can be told from it: the user has to look."""
    credit = credit_of(verdict)
    step.take(
        InitialScored(
            job_id=request.job_id,
            candidate_id=request.candidate_id,
            fate=fate_of(verdict),
            outcome=outcome_line(verdict),
            credit=credit,
        )
    )
    if credit is None:
        stop(step, "infrastructure", f"the initial program itself gets no score: {outcome_line(verdict)}")


def _finish(step: Step, branch: Branch, known: Known, *, round_number: int) -> None:
    step.take(
        AttemptFinished(
            branch_id=branch.branch_id,
            candidate_id=known.candidate_id,
            fate=known.fate,
            outcome=known.outcome,
            credit=known.credit,
            speedup=known.speedup,
            latency_us=known.latency_us,
            round=round_number,
            improved=_improves(branch, known),
        )
    )
    incumbent = step.state.incumbent
    if known.credit is None:
        return
    if incumbent is None or known.credit > incumbent.credit:
        step.take(
            IncumbentChanged(
                candidate_id=known.candidate_id,
                node_id=branch.node_id,
                round=step.state.rounds,
                credit=known.credit,
                speedup=known.speedup,
                latency_us=known.latency_us,
            )
        )


def _improves(branch: Branch, known: Known) -> bool:
    """Say whether a candidate is better than the branch's best by more than the measurement's interval."""
    if known.fate not in GOOD_FATES:
        return False
    if branch.best is None:
        return True
    bar = branch.best.credit if branch.best.speedup is None else branch.best.speedup
    return (known.credit or 0.0) > (bar or 0.0)


def _request(state: SearchState, job_id: str) -> Requested | None:
    """Return what an answer answers; none if that job was answered before or given up.

    Raises:
        ProtocolError: no such job was ever asked for.
    """
    if (job := state.jobs.get(job_id)) is not None and not state.finished:
        return job.request
    if not job_id.startswith(f"{state.run_id}-") or number_of(job_id) > state.issued:
        raise ProtocolError(f"job {job_id!r} was never asked for")
    return None
