"""What the infrastructure lost: asked for again, given up, or a reason to stop the run.

A job is lost after all tries of its call and all its deliveries. One that is lost a second time may itself be why: an
answer that never ends, a program that takes its evaluator down. It is given up, which says nothing about the action;
asked for again and again it would stop the run as soon as nothing else is under way.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from msgspec.structs import replace

from actors.planner.core.judging import finish, finish_awaiting
from actors.planner.core.state import Known, Requested, is_confirmation, is_question
from actors.planner.core.step import Step
from actors.planner.core.supply import resend, stop
from messages.events import JobLost
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    EvaluationRequested,
    LossNoted,
    PlanRequested,
    WriteRequested,
)

_GIVEN_UP_AFTER: Final = 2


def note_loss(step: Step, request: Requested, event: JobLost) -> bool:
    """Take a loss in, and have the job done again. True if it is to be given up instead: it was lost before.

    Too many losses in a row stop the run, and so does one that trying again cannot help. Neither says anything about
    this job, nor does the loss of one that was asked before the run was resumed.
    """
    is_old = step.state.jobs[event.job_id].reopened
    step.take(LossNoted(job_id=event.job_id, error=event.error, permanent=event.permanent))
    is_hopeless = not is_old and (event.permanent or step.state.losses >= step.state.settings.max_lost)
    if is_hopeless and (step.state.running or is_confirmation(request)):
        stop(step, "infrastructure", event.error)
    if is_hopeless and step.state.ending:
        return False
    if not is_old and not is_hopeless and _may_be_given_up(request):
        request = replace(request, lost=request.lost + 1)
        if request.lost >= _GIVEN_UP_AFTER:
            return True
    resend(step, request)
    return False


def give_up(step: Step, request: WriteRequested | BuildRequested | EvaluationRequested) -> None:
    """End the draft that waited for a job, and those that wrote the same."""
    if isinstance(request, WriteRequested):
        step.take(
            AttemptFinished(
                branch_id=request.branch_id,
                candidate_id=None,
                fate="lost",
                outcome="lost: no answer",
                draft=request.draft,
            )
        )
        return
    nothing = Known(candidate_id=request.candidate_id, fate="lost", outcome="lost: no verdict")
    branch = step.state.branches[request.branch_id]
    finish(step, branch, branch.draft(request.draft), nothing)
    finish_awaiting(step, nothing)


def _may_be_given_up(
    request: Requested,
) -> TypeGuard[WriteRequested | PlanRequested | BuildRequested | EvaluationRequested]:
    """Say whether the search can go on without it: it cannot without a confirmation, or the program it begins with."""
    is_branchs = isinstance(request, BuildRequested | EvaluationRequested) and not is_confirmation(request)
    return is_branchs or is_question(request)
