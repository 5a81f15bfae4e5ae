"""The coder: answers `WriteCandidate` with one model call. It is stateless; run as many as the endpoint can serve."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Unpack

import msgspec

from actors.bus.base import Bus
from actors.coder.answers import read_candidate
from actors.coder.edits import holds_edits
from actors.coder.parse import Parsed, declines
from actors.coder.prompts import request_for
from actors.llm.answer_text import CUT_IN_REASONING, FenceEnding, OutsideReasoning, split_reasoning
from actors.llm.base import Answer, Model, Request
from actors.worker.work import Service, serve
from messages.base import copied
from messages.commands import WriteCandidate
from messages.events import CandidateWritten
from messages.models import TASK, Original, quoting
from messages.tasks import Candidate

CUT_OFF = "length"
"""Finish reason of an answer that was cut off at the endpoint's token limit."""
_ENDED_WELL = ("stop", "ended_early")


async def serve_writes(bus: Bus, model: Model, **service: Unpack[Service]) -> None:
    """Answer every `WriteCandidate` of some queues until cancelled or the member leaves.

    An answer without a usable program becomes a `CandidateWritten` with a complaint. If the model fails, the bus
    retries the job. A permanent failure ends a single-process run with a `JobLost`; with several members, the job is
    left to the others.
    """
    await serve(
        bus,
        handle=partial(write_candidate, model),
        expects=WriteCandidate,
        role="coder",
        deadline_s=lambda _: inf,  # a model's time-out is its own, and who answers by hand has none
        **service,
    )


async def write_candidate(model: Model, job: WriteCandidate) -> CandidateWritten:
    """Call the model once and parse its answer.

    Raises:
        messages.base.ModelError: the endpoint failed.
    """
    ending = partial(OutsideReasoning, partial(FenceEnding, partial(_holds_candidate, job)))
    request = msgspec.structs.replace(request_for(job), model=job.model, ending=ending)
    return _quoting(job, read_answer(job, request, await model.complete(request)))


def read_answer(job: WriteCandidate, request: Request, answer: Answer) -> CandidateWritten:
    """Return the event for a model's answer. Pure, so replays parse the same answer identically."""
    spoken = split_reasoning(answer.text)
    declined = declines(spoken.answer) if job.mode == "improve" else ""
    is_complete = answer.finish_reason in _ENDED_WELL
    parsed = Parsed(None, "") if declined else read_candidate(job, spoken.answer, is_complete=is_complete)
    complaint = CUT_IN_REASONING if parsed.complaint and spoken.is_open else parsed.complaint
    return copied(
        CandidateWritten,
        answer,
        job_id=job.job_id,
        branch_id=job.branch_id,
        candidate=parsed.candidate,
        complaint=_with_reason(complaint, answer),
        notes=parsed.notes,
        declined=declined,
        prompt=f"{request.system}\n\n{request.prompt}",
        answer=answer.text,
    )


def _quoting(job: WriteCandidate, written: CandidateWritten) -> CandidateWritten:
    shown = [found for found in (job.base, job.second, job.current) if found is not None]
    given = [Original(source=TASK, text=job.task.prompt), *(each for found in shown for each in _originals(found))]
    own = _originals(written.candidate) if written.candidate is not None else []
    prompt, prompt_quotes = quoting(written.prompt, given)
    answer, answer_quotes = quoting(written.answer, own)
    return msgspec.structs.replace(
        written, prompt=prompt, prompt_quotes=prompt_quotes, answer=answer, answer_quotes=answer_quotes
    )


def _originals(candidate: Candidate) -> list[Original]:
    return [Original(source=candidate.candidate_id, path=file.path, text=file.text) for file in candidate.files]


def _holds_candidate(job: WriteCandidate, text: str) -> bool:
    """Return True if a partial answer already contains a whole candidate; False if it has search/replace blocks.

    More blocks could follow.
    """
    return not holds_edits(text) and read_candidate(job, text).candidate is not None


def _with_reason(complaint: str, answer: Answer) -> str:
    """Add the endpoint's reason for ending the answer, if it explains the complaint."""
    if not complaint or answer.finish_reason in _ENDED_WELL:
        return complaint
    if answer.finish_reason == CUT_OFF:
        return f"{complaint}. The endpoint cut the answer off at its token limit: be shorter"
    return f"{complaint}. The endpoint ended the answer with {answer.finish_reason!r}"
