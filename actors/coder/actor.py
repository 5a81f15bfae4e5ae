"""The coder: answers `WriteCandidate` with one call of a model. Stateless; run as many as the endpoint bears."""

from __future__ import annotations

from functools import partial

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.coder.parse import declines, parse_answer
from actors.coder.prompts import request_for
from actors.llm.base import Answer, Model
from actors.work import serve
from messages.commands import WriteCandidate
from messages.events import CandidateWritten
from messages.subjects import write_jobs

CUT_OFF = "length"
"""Finish reason of an answer that met the endpoint's token limit."""


async def serve_writes(
    bus: Bus,
    model: Model,
    *,
    run_id: str,
    slots: int = 1,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer every `WriteCandidate` of a run until cancelled, `slots` at once.

    An answer without a usable program is a `CandidateWritten` with a complaint. A model that fails is retried by the
    bus; one that fails for good is a `JobLost`.
    """
    await serve(
        bus,
        write_jobs(run_id),
        partial(write_candidate, model),
        expects=WriteCandidate,
        run_id=run_id,
        slots=slots,
        task_status=task_status,
    )


async def write_candidate(model: Model, job: WriteCandidate) -> CandidateWritten:
    """Ask the model once and read its answer.

    Raises:
        messages.errors.ModelError: the endpoint failed.
    """
    request = request_for(job)
    answer = await model.complete(request)
    declined = declines(answer.text) if job.mode == "improve" else ""
    candidate, complaint = None, ""
    if not declined:
        candidate, complaint = parse_answer(answer.text, language=job.language, entry_point=job.task.entry_point)
    return CandidateWritten(
        job_id=job.job_id,
        branch_id=job.branch_id,
        candidate=candidate,
        complaint=_with_reason(complaint, answer),
        declined=declined,
        prompt=f"{request.system}\n\n{request.prompt}",
        answer=answer.text,
        model=answer.model,
        usage=answer.usage,
        latency_s=answer.latency_s,
        faults=answer.faults,
    )


def _with_reason(complaint: str, answer: Answer) -> str:
    """Add how the endpoint ended the answer, where that explains what is wrong with it."""
    if not complaint or answer.finish_reason == "stop":
        return complaint
    if answer.finish_reason == CUT_OFF:
        return f"{complaint}. The endpoint cut the answer off at its token limit: be shorter"
    return f"{complaint}. The endpoint ended the answer with {answer.finish_reason!r}"
