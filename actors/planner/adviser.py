"""The planner's model as the planner knows it: asked for edits, patiently, and its answer as an event."""

from __future__ import annotations

import anyio
import msgspec
import structlog

from actors.llm.base import Answer, Model, Request, rules_digest
from actors.llm.endpoints.endings import JsonEnding, OutsideReasoning
from actors.llm.endpoints.features import answer_schema
from actors.planner.answers import read_script
from actors.worker.work import MAX_ATTEMPTS, delay_s
from messages.base import ModelError
from messages.edits import EditScript
from messages.events import EditsProposed, JobLost

_SCHEMA = answer_schema(EditScript)

log = structlog.get_logger(__name__)


def read_proposal(question: Request, answer: Answer) -> EditsProposed:
    """Return what a model's answer to the planner's question comes to. Pure: the same answer is always read alike."""
    read = read_script(answer.text)
    return EditsProposed(
        job_id=question.request_id,
        script=read.script,
        complaint=read.complaint,
        notes=read.notes,
        unread=read.unread,
        prompt=question.prompt,
        prompt_bytes=len(f"{question.system}\n\n{question.prompt}".encode()),
        rules_digest=rules_digest(question.system),
        answer=answer.text,
        model=answer.model,
        usage=answer.usage,
        latency_s=answer.latency_s,
        finish_reason=answer.finish_reason,
        faults=answer.faults,
    )


def _ending() -> OutsideReasoning:
    return OutsideReasoning(lambda: JsonEnding(_is_usable))


def _is_usable(text: str) -> bool:
    read = read_script(text)
    return read.script is not None and not read.unread


class Adviser:
    """Answers the planner's questions. One at a time is asked, but for those of a run that was just resumed."""

    def __init__(self, model: Model, *, was_answered: bool) -> None:
        """Begin; `was_answered` says whether the run has had an answer before: then its endpoint works."""
        self._model = model
        self._was_answered = was_answered

    async def propose(self, question: Request) -> EditsProposed | JobLost:
        """Return what came of a question: an edit script, a complaint about the answer, or a failure."""
        asked = msgspec.structs.replace(question, ending=_ending, schema=_SCHEMA)
        try:
            answer = await self._ask(asked)
        except ModelError as error:
            return JobLost(
                job_id=question.request_id,
                kind="plan",
                error=str(error),
                permanent=error.permanent,
                faults=error.faults,
            )
        return read_proposal(question, answer)

    async def _ask(self, question: Request) -> Answer:
        """Ask, and ask again under the same id as workers do: an endpoint that is away for minutes costs no question.

        Not before anything was answered: a run that cannot begin shall say so soon.

        Raises:
            ModelError: the last one.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._model.complete(question)
            except ModelError as error:
                if error.permanent or attempt >= MAX_ATTEMPTS or not self._was_answered:
                    raise
                log.info("planner's question failed", job=question.request_id, attempt=attempt, error=str(error))
                await anyio.sleep(delay_s(attempt))
            else:
                self._was_answered = True
                return answer
