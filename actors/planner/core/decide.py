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

from actors.planner.core.budget import proposed_spend, written_spend
from actors.planner.core.confirming import conclude, conclude_with, present
from actors.planner.core.evidence import build_facts_of
from actors.planner.core.judging import finish, is_under_way, judge, may_be_retried
from actors.planner.core.losses import give_up, note_loss
from actors.planner.core.racing import keep_above
from actors.planner.core.scripts import WHOLE, changes, conflicts, in_answer, without_refused
from actors.planner.core.state import (
    Requested,
    SearchState,
    is_confirmation,
    number_of,
)
from actors.planner.core.steering import carry_out, inherit
from actors.planner.core.step import Step
from actors.planner.core.supply import ask_others, begin, drop_unpaid, resend, stop
from messages.edits import EditScript, Refusal
from messages.errors import ProtocolError
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ClockTicked,
    ContinueRequested,
    EditsProposed,
    Event,
    JobLost,
    JobsUnserved,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    CandidateAwaited,
    ConfirmationRequested,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    Fact,
    InitialRequested,
    InitialScored,
    PlanAbandoned,
    PlanRequested,
    RunContinued,
    RunPaused,
    SearchOpened,
    SearchReopened,
    TimeNoted,
    WriteRequested,
)
from messages.steering import SteeringRequested
from messages.verdicts import DidNotBuild, Verdict, credit_of, fate_of, outcome_line

NO_ANSWER = "no answer arrived: a shorter one may"
"""What a planner's model is told that is asked again: most answers that are lost took too long."""
EventT = TypeVar("EventT", bound=Event)
_reactions: dict[type, Callable[[Step, Any], None]] = {}


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
            lineup=event.lineup,
        )
    )
    inherit(step, event)


@_reacts_to(RunResumed)
def _resumed(step: Step, event: RunResumed) -> None:
    lost = step.state.questions
    budget = event.budget or step.state.settings.budget
    step.take(SearchReopened(budget=budget, lost_calls=len(lost), lineup=event.lineup))
    drop_unpaid(step)
    ask_others(step)


@_reacts_to(StopRequested)
def _stop_requested(step: Step, event: StopRequested) -> None:
    stop(step, "interrupted", event.reason)


@_reacts_to(PauseRequested)
def _pause_requested(step: Step, event: PauseRequested) -> None:
    if step.state.running and not step.state.paused:
        step.take(RunPaused(reason=event.reason))


@_reacts_to(ContinueRequested)
def _continue_requested(step: Step, _event: ContinueRequested) -> None:
    if step.state.running and step.state.paused:
        step.take(RunContinued())


@_reacts_to(SteeringRequested)
def _steering_requested(step: Step, event: SteeringRequested) -> None:
    carry_out(step, event.order)


@_reacts_to(JobsUnserved)
def _unserved(_step: Step, _event: JobsUnserved) -> None:
    """Change nothing: it is said to people."""


@_reacts_to(ClockTicked)
def _ticked(step: Step, event: ClockTicked) -> None:
    if not step.state.finished and event.elapsed_s > step.state.elapsed_s:
        step.take(TimeNoted(elapsed_s=event.elapsed_s))


@_reacts_to(JobLost)
def _lost(step: Step, event: JobLost) -> None:
    if (request := _request(step.state, event.job_id)) is None:
        return
    if not note_loss(step, request, event):
        return
    if isinstance(request, PlanRequested):
        _refuse(step, request, (Refusal(index=WHOLE, reason=NO_ANSWER),))
    elif isinstance(request, WriteRequested | BuildRequested | EvaluationRequested):
        give_up(step, request)


@_reacts_to(CandidateWritten)
def _written(step: Step, event: CandidateWritten) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, WriteRequested):
        return
    branch = step.state.branches[request.branch_id]
    draft = branch.draft(request.draft)
    if request.given_id is None:
        step.take(written_spend(step.state, request, event, branch.node_id))
    if event.candidate is None:
        fate, why = ("declined", event.declined) if event.declined else ("unusable", event.complaint)
        outcome = f"{fate}: {why}"
        step.take(
            AttemptFinished(
                branch_id=branch.branch_id, candidate_id=None, fate=fate, outcome=outcome, draft=draft.number
            )
        )
        return
    candidate_id = event.candidate.candidate_id
    known = step.state.known.get(candidate_id)
    if is_under_way(step.state, candidate_id):
        step.take(CandidateAwaited(branch_id=branch.branch_id, candidate_id=candidate_id, draft=draft.number))
    elif known is not None and not may_be_retried(known):
        finish(step, branch, draft, known)
        present(step, known, branch.node_id, artifact_id=None)
    else:
        job_id = step.job_id("x")
        step.take(
            BuildRequested(job_id=job_id, branch_id=branch.branch_id, candidate_id=candidate_id, draft=draft.number)
        )


@_reacts_to(CandidateBuilt)
def _built(step: Step, event: CandidateBuilt) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, BuildRequested):
        return
    match event.outcome:
        case DidNotBuild() as verdict if is_confirmation(request):
            conclude_with(step, request.job_id, request.candidate_id, verdict)
        case DidNotBuild() as verdict:
            judge(step, request, verdict)
        case Built(artifact_id=artifact_id) if is_confirmation(request):
            step.take(
                ConfirmationRequested(
                    job_id=step.job_id("e"), candidate_id=request.candidate_id, artifact_id=artifact_id
                )
            )
        case Built(artifact_id=artifact_id, log=build_log):
            step.take(
                EvaluationRequested(
                    job_id=step.job_id("e"),
                    branch_id=request.branch_id,
                    candidate_id=request.candidate_id,
                    artifact_id=artifact_id,
                    keep_above=keep_above(step.state, step.state.branches[request.branch_id]),
                    draft=request.draft,
                    lost=request.lost,
                    build_facts=build_facts_of(build_log),
                )
            )


@_reacts_to(CandidateEvaluated)
def _evaluated(step: Step, event: CandidateEvaluated) -> None:
    request = _request(step.state, event.job_id)
    match request:
        case EvaluationRequested():
            judge(step, request, event.verdict, lease_s=event.lease_s)
        case InitialRequested():
            _judge_initial(step, request, event.verdict)
        case ConfirmationRequested():
            conclude(step, request, event)
        case _:
            pass


@_reacts_to(EditsProposed)
def _proposed(step: Step, event: EditsProposed) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, PlanRequested):
        return
    step.take(proposed_spend(step.state, event))
    if event.script is None:
        _refuse(step, request, (Refusal(index=WHOLE, reason=event.complaint),))
        return
    limit = max(step.state.settings.max_new_nodes, request.wanted)
    refusals = conflicts(step.state, event.script, limit=limit)
    if (refusals or event.unread) and request.tries < step.state.settings.refusals:
        _refuse(step, request, in_answer(refusals, event))
    else:
        _apply(step, request, event, event.script, refusals, limit)


def _refuse(step: Step, request: PlanRequested, refusals: tuple[Refusal, ...]) -> None:
    """Refuse a script as a whole and ask again, or give this call up."""
    if request.tries >= step.state.settings.refusals:
        step.take(PlanAbandoned(job_id=request.job_id, reason=refusals[0].reason))
        return
    step.take(EditsRefused(job_id=request.job_id, refusals=refusals))
    resend(step, request, refusals=refusals)


def _apply(
    step: Step,
    request: PlanRequested,
    event: EditsProposed,
    script: EditScript,
    refusals: tuple[Refusal, ...],
    limit: int,
) -> None:
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
            refusals=in_answer(refusals + dependent, event),
            summary=script.summary,
            open_questions=script.open_questions,
        )
    )


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
