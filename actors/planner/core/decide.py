"""Decides on one event: judging, lost jobs, and their consequences. Start reading here.

1. The planner's model analyses the task and inserts first actions under the root.
2. While slots are free, the best frontier node (`selection`) gets a branch.
3. A branch asks a coder for a candidate, has it built, then evaluated, and asks again (debug, improve) until
  `stagnation_window` consecutive attempts brought no improvement. Its best correct candidate is attached to the node.
4. Finished branches are reported to the planner's model, all waiting ones in one call; it revises the tree while other
  branches continue. When open actions run short, the same call asks for more.
5. The run ends when its budget is spent, its target is reached, or neither model nor machine finds anything to try.

A candidate that was stopped early is correct and slower than the bar (`keep_above`); it never becomes the incumbent. An
unstable one is measured once more as another round; if that is unstable too, it counts with its lower bound. A job lost
twice is given up, since the job itself may be the cause.

`scheduling` describes the work that begins after an event. Neither module reads a clock or draws random numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from actors.planner.core.budget import proposed_spend, rounds_left, written_spend
from actors.planner.core.evolve import Step
from actors.planner.core.scheduling import ask_others, begin, conclude, drop_unpaid, present, resend, stop
from actors.planner.core.scripts import WHOLE, changes, conflicts, in_answer, without_refused
from actors.planner.core.state import (
    Branch,
    Draft,
    Known,
    Requested,
    SearchState,
    active,
    is_confirmation,
    is_question,
    number_of,
)
from actors.planner.core.steering import carry_out, inherit
from messages.base import ProtocolError, copied
from messages.edits import EditScript, Refusal
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
    LossNoted,
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
from messages.verdicts import (
    CORRECT_FATES,
    Crashed,
    DidNotBuild,
    Fate,
    Measured,
    Outpaced,
    Rejected,
    TimedOut,
    Unstable,
    Verdict,
    Wrong,
    credit_of,
    fate_of,
    outcome_line,
    workload_lines,
)

MAX_LINES = 8
MAX_CHARS = 160
_KERNELS = 4
_KERNEL = re.compile(r"^kernel \S+: .+$", re.MULTILINE)


def evidence_of(verdict: Verdict) -> tuple[str, ...]:
    """Return details of a verdict, without expected values; at most `MAX_LINES` lines of `MAX_CHARS` characters."""
    return tuple(_short(line) for line in _lines(verdict)[:MAX_LINES])


def build_facts_of(log: str) -> tuple[str, ...]:
    """Return the builder log's lines about each kernel (registers, spills, shared memory); bounded."""
    kernels = [_short(line) for line in _KERNEL.findall(log)]
    left_out = len(kernels) - _KERNELS
    return (*kernels[:_KERNELS], f"({left_out} more kernels)") if left_out > 0 else tuple(kernels)


def _lines(verdict: Verdict) -> tuple[str, ...]:
    match verdict:
        case Wrong():
            return tuple(_wrong(verdict))
        case DidNotBuild(log=log):
            return tuple(line.strip() for line in log.splitlines() if "error" in line and line.strip())[:2]
        case Crashed(stage=stage) if stage:
            return (f"it crashed during {stage}",)
        case TimedOut():
            return (f"it was killed after {verdict.limit_s:g} s of {verdict.stage}",)
        case Rejected(rule=rule):
            return (f"the rule: {rule}",)
        case _:
            return workload_lines(verdict)


def _wrong(verdict: Wrong) -> list[str]:
    lines = []
    if verdict.elements:
        share = verdict.wrong_elements / verdict.elements
        where = f", the first at {list(verdict.first_wrong)}" if verdict.first_wrong else ""
        lines.append(f"{verdict.wrong_elements} of {verdict.elements} elements are wrong ({share:.1%}){where}")
    if verdict.patterns:
        lines.append(f"the wrong places: {', '.join(verdict.patterns)}")
    if verdict.family:
        lines.append(f"with inputs of the family {verdict.family!r}, largest error {verdict.max_abs_error:.3g}")
    return lines


def _short(line: str) -> str:
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 2].rpartition(' ')[0] or line[: MAX_CHARS - 2]} …"


NEAR = 0.9
"""Share of the branch's best speedup below which a candidate cannot become the branch's best or the incumbent."""
FAR = 0.5
"""The same share of the base's speedup, while a branch has no correct candidate: slow detours need no exact time."""
_REFERENCE = 1.0


def keep_above(state: SearchState, branch: Branch) -> float | None:
    """Return the speedup below which a branch's next candidate need not be timed fully; None for no bar."""
    if state.scored:
        return None
    best, share = (branch.best, NEAR) if branch.best is not None else (branch.base, FAR)
    credit = best.credit if best is not None else _REFERENCE
    return None if credit is None else share * credit


def judge(step: Step, request: BuildRequested | EvaluationRequested, verdict: Verdict, *, lease_s: float = 0.0) -> None:
    """Finish the evaluated draft and drafts with the same program, or have it measured again."""
    branch = step.state.branches[request.branch_id]
    draft = branch.draft(request.draft)
    known = _known(step.state, request.candidate_id, verdict)
    round_number = step.state.rounds + 1
    evidence, artifact_id = evidence_of(verdict), None
    if isinstance(request, EvaluationRequested):
        if _is_measured_again(step.state, request, verdict):
            finish(step, branch, draft, known, round_number=round_number, lease_s=lease_s, measured_again=True)
            step.take(replace(request, job_id=step.job_id("e"), lost=0))
            return
        evidence, artifact_id = (*evidence, *request.build_facts), request.artifact_id
    finish(step, branch, draft, known, round_number=round_number, lease_s=lease_s, evidence=evidence)
    present(step, known, branch.node_id, artifact_id=artifact_id)
    _finish_awaiting(step, known)


def _finish_awaiting(step: Step, known: Known) -> None:
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
    """Record the result of a draft; round 0 means that its candidate was not evaluated for it."""
    finished = copied(
        AttemptFinished,
        known,
        branch_id=branch.branch_id,
        round=round_number,
        improved=not measured_again and _improves(branch, known),
        lease_s=lease_s,
        draft=draft.number,
        measured_again=measured_again,
        evidence=evidence,
    )
    step.take(finished)


def _is_measured_again(state: SearchState, request: EvaluationRequested, verdict: Verdict) -> bool:
    is_first = request.candidate_id not in state.known
    return isinstance(verdict, Unstable) and is_first and not state.ending and rounds_left(state) > 0


def _known(state: SearchState, candidate_id: str, verdict: Verdict) -> Known:
    credit, speedup, high, latency_us = credit_of(verdict), None, None, None
    if isinstance(verdict, Measured):
        speedup, latency_us = verdict.speedup_vs_reference, verdict.latency_us
        high = verdict.speedup_interval.high if verdict.speedup_interval is not None else None
    elif isinstance(verdict, Outpaced):
        interval = verdict.speedup_interval
        credit, speedup, high = interval.low, (interval.low + interval.high) / 2, interval.high
    elif isinstance(verdict, Unstable) and verdict.speedup_interval.high > 0:
        # The interval is so wide that neither its middle nor its upper end says anything about the candidate.
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
    if before is None or not known.fate == before.fate == "unstable":
        return known
    slower = min(before, known, key=lambda one: one.credit or 0.0)  # the better of two is never what counts
    worth = {name: getattr(slower, name) for name in ("credit", "speedup", "speedup_high")}
    return replace(known, outcome=f"{known.outcome} (measured twice)", latency_us=None, **worth)


def _improves(branch: Branch, known: Known) -> bool:
    if known.fate not in CORRECT_FATES:
        return False
    if branch.best is None:
        return True
    bar = branch.best.credit if branch.best.speedup is None else branch.best.speedup
    return (known.credit or 0.0) > (bar or 0.0)


_GIVEN_UP_AFTER: Final = 2


def note_loss(step: Step, request: Requested, event: JobLost) -> bool:
    """Record a loss and request the job again. Returns True to give the job up, since it was lost before.

    Too many consecutive losses, or a permanent one, stop the run. This loss does not count against the job, nor does
    the loss of a job that was requested before the run was resumed.
    """
    is_old = step.state.jobs[event.job_id].reopened
    step.take(LossNoted(job_id=event.job_id, error=event.error, permanent=event.permanent))
    is_hopeless = not is_old and (event.permanent or step.state.losses >= step.state.settings.max_lost)
    if is_hopeless and (step.state.running or is_confirmation(request)):
        stop(step, "infrastructure", event.error)
    if is_hopeless and step.state.ending:
        return False
    if is_old or is_hopeless:
        resend(step, request)
        return False
    is_for_branch = isinstance(request, BuildRequested | EvaluationRequested) and not is_confirmation(request)
    if isinstance(request, WriteRequested | PlanRequested | BuildRequested | EvaluationRequested) and (
        is_for_branch or is_question(request)
    ):
        request = replace(request, lost=request.lost + 1)
        if request.lost >= _GIVEN_UP_AFTER:
            return True
    resend(step, request)
    return False


def give_up(step: Step, request: WriteRequested | BuildRequested | EvaluationRequested) -> None:
    """End the draft that waited for a job, and drafts with the same program."""
    if isinstance(request, WriteRequested):
        _end_unwritten(step, request, "lost", "no answer")
        return
    nothing = Known(candidate_id=request.candidate_id, fate="lost", outcome="lost: no verdict")
    branch = step.state.branches[request.branch_id]
    finish(step, branch, branch.draft(request.draft), nothing)
    _finish_awaiting(step, nothing)


def _end_unwritten(step: Step, request: WriteRequested, fate: Fate, why: str) -> None:
    step.take(
        AttemptFinished(
            branch_id=request.branch_id, candidate_id=None, fate=fate, outcome=f"{fate}: {why}", draft=request.draft
        )
    )


NO_ANSWER = "no answer arrived: a shorter one may"
"""Message to a planner's model that is asked again: most lost answers took too long."""
EventT = TypeVar("EventT", bound=Event)
_reactions: dict[type, Callable[[Step, Any], None]] = {
    StopRequested: lambda step, event: stop(step, "interrupted", event.reason),
    SteeringRequested: lambda step, event: carry_out(step, event.order),
    JobsUnserved: lambda _step, _event: None,  # for people
}


def react(state: SearchState, event: Event) -> Step:
    """Return the event's consequences: its facts (none for a repeated or late result) and the state after them.

    Raises:
        ProtocolError: the event answers a job that was never requested, or opens a search that is open.
    """
    step = Step(state)
    _reactions[type(event)](step, event)
    if step.facts or isinstance(event, RunResumed):
        begin(step)
    return step


def decide(state: SearchState, event: Event) -> tuple[Fact, ...]:
    """Return the facts of `react`."""
    return tuple(react(state, event).facts)


def _reacts_to(kind: type[EventT]) -> Callable[[Callable[[Step, EventT], None]], None]:
    def register(reaction: Callable[[Step, EventT], None]) -> None:
        _reactions[kind] = reaction

    return register


@_reacts_to(RunStarted)
def _started(step: Step, event: RunStarted) -> None:
    if step.state.status != "new":
        raise ProtocolError(f"run {event.run_id!r} was started twice")
    initial_id = event.initial.candidate_id if event.initial else None
    step.take(copied(SearchOpened, event, task_id=event.task.task_id, initial_id=initial_id))
    inherit(step, event)


@_reacts_to(RunResumed)
def _resumed(step: Step, event: RunResumed) -> None:
    lost = step.state.questions
    budget = event.budget or step.state.settings.budget
    step.take(SearchReopened(budget=budget, lost_calls=len(lost), lineup=event.lineup))
    drop_unpaid(step)
    ask_others(step)


@_reacts_to(PauseRequested)
def _pause_requested(step: Step, event: PauseRequested) -> None:
    if step.state.running and not step.state.paused:
        step.take(RunPaused(reason=event.reason))


@_reacts_to(ContinueRequested)
def _continue_requested(step: Step, _event: ContinueRequested) -> None:
    if step.state.running and step.state.paused:
        step.take(RunContinued())


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
        _end_unwritten(step, request, fate, why)
        return
    candidate_id = event.candidate.candidate_id
    known = step.state.known.get(candidate_id)
    if any(other.candidate_id == candidate_id for each in step.state.branches.values() for other in each.drafts):
        step.take(CandidateAwaited(branch_id=branch.branch_id, candidate_id=candidate_id, draft=draft.number))
        return
    may_be_retried = known is not None and known.fate == "timed_out" and known.evaluations == 1 and not known.confirmed
    if known is not None and not may_be_retried:
        finish(step, branch, draft, known)
        present(step, known, branch.node_id, artifact_id=None)
        return
    job_id = step.job_id("x")
    step.take(BuildRequested(job_id=job_id, branch_id=branch.branch_id, candidate_id=candidate_id, draft=draft.number))


@_reacts_to(CandidateBuilt)
def _built(step: Step, event: CandidateBuilt) -> None:
    request = _request(step.state, event.job_id)
    if not isinstance(request, BuildRequested):
        return
    match event.outcome:
        case DidNotBuild() as verdict if is_confirmation(request):
            conclude(step, request, verdict)
        case DidNotBuild() as verdict:
            judge(step, request, verdict)
        case Built(artifact_id=artifact_id) if is_confirmation(request):
            step.take(copied(ConfirmationRequested, request, job_id=step.job_id("e"), artifact_id=artifact_id))
        case Built(artifact_id=artifact_id, log=build_log):
            bar = keep_above(step.state, step.state.branches[request.branch_id])
            evaluation = copied(
                EvaluationRequested,
                request,
                job_id=step.job_id("e"),
                artifact_id=artifact_id,
                keep_above=bar,
                build_facts=build_facts_of(build_log),
            )
            step.take(evaluation)


@_reacts_to(CandidateEvaluated)
def _evaluated(step: Step, event: CandidateEvaluated) -> None:
    request = _request(step.state, event.job_id)
    match request:
        case EvaluationRequested():
            judge(step, request, event.verdict, lease_s=event.lease_s)
        case InitialRequested():
            _judge_initial(step, request, event.verdict)
        case ConfirmationRequested():
            conclude(step, request, event.verdict, lease_s=event.lease_s)
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
    """Set the root's score; without one the run stops, since nothing could be compared with it."""
    credit, outcome = credit_of(verdict), outcome_line(verdict)
    step.take(copied(InitialScored, request, fate=fate_of(verdict), outcome=outcome, credit=credit))
    if credit is None:
        stop(step, "infrastructure", f"the initial program itself gets no score: {outcome}")


def _request(state: SearchState, job_id: str) -> Requested | None:
    """Return the request that an answer belongs to; None if it was answered before or given up.

    Raises:
        ProtocolError: the job was never requested.
    """
    if (job := state.jobs.get(job_id)) is not None and not state.finished:
        return job.request
    if not job_id.startswith(f"{state.run_id}-") or number_of(job_id) > state.issued:
        raise ProtocolError(f"job {job_id!r} was never asked for")
    return None
