"""What the planner looks up when it writes jobs and prompts: programs and verdicts, by content hash.

The search state holds ids only; the texts come from the events, live or replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from evaluators.hardware.profiles import told_of
from messages.codec import Body, Record
from messages.errors import ProtocolError
from messages.events import (
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    EditsProposed,
    JobLost,
    RunStarted,
)
from messages.profiles import WorkloadProfile
from messages.quotes import TASK, Original, Quote, continuing, quoting, whole
from messages.steering import Inject, SteeringRequested
from messages.tasks import Candidate
from messages.verdicts import DidNotBuild, Measured, Verdict

_PROMPTS_KEPT = 4
"""Prompts of the planner's, the newest ones: the next one quotes the last, or at most a few before it."""


def whole_records(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a run's records, from its first on, with prompts and answers as they were."""
    texts = Texts()
    for record in records:
        texts.take(record.body)
        yield replace(record, body=texts.whole(record.body))


def whole_written(written: CandidateWritten, find: Callable[[Quote], str | None]) -> CandidateWritten:
    """Return a coder's answer with all that was asked and said; `find` returns the texts that quotes are from."""
    prompt = whole(written.prompt, written.prompt_quotes, find)
    answer = whole(written.answer, written.answer_quotes, find)
    return replace(written, prompt=prompt, prompt_quotes=(), answer=answer, answer_quotes=())


def text_of(candidate: Candidate, path: str) -> str | None:
    """Return one of a candidate's files; None if it has none of that name."""
    return next((file.text for file in candidate.files if file.path == path), None)


class Texts:
    """Texts of one run."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._candidates: dict[str, Candidate] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._blobs: dict[str, str] = {}
        self._prompts: dict[str, str] = {}
        """Of the planner's jobs."""

    def take(self, body: Body) -> None:
        """Keep what the event brings."""
        match body:
            case RunStarted():
                self._started = body
                inherited = [node.candidate for node in body.heritage.nodes] if body.heritage else []
                self._keep(body.initial, body.solution, *inherited)
            case SteeringRequested(order=Inject(candidate=candidate)):
                self._keep(candidate)
            case CandidateWritten(candidate=Candidate() as candidate):
                self._candidates[candidate.candidate_id] = candidate
            case CandidateBuilt():
                self._take_built(body)
            case CandidateEvaluated():
                self._verdicts[body.candidate_id] = body.verdict
            case EditsProposed():
                self._take_proposed(body)
            case _:
                pass

    def _take_built(self, body: CandidateBuilt) -> None:
        if isinstance(body.outcome, DidNotBuild):
            self._verdicts[body.candidate_id] = body.outcome
        elif body.outcome.blob:
            self._blobs[body.outcome.artifact_id] = body.outcome.blob

    def _take_proposed(self, body: EditsProposed) -> None:
        self._prompts[body.job_id] = whole(body.prompt, body.prompt_quotes, self.quoted)
        for old in list(self._prompts)[:-_PROMPTS_KEPT]:
            del self._prompts[old]

    def _keep(self, *candidates: Candidate | None) -> None:
        self._candidates |= {found.candidate_id: found for found in candidates if found is not None}

    def whole(self, body: Body) -> Body:
        """Return an event that was taken with its prompt and its answer as they were; any other as it is."""
        match body:
            case CandidateWritten():
                return whole_written(body, self.quoted)
            case EditsProposed():
                prompt = whole(body.prompt, body.prompt_quotes, self.quoted)
                return replace(body, prompt=prompt, prompt_quotes=())
            case _:
                return body

    def quoting(self, said: EditsProposed | JobLost) -> EditsProposed | JobLost:
        """Return an answer of the planner's model without what its prompt has in common with the one before."""
        if isinstance(said, JobLost):
            return said
        if self._prompts:
            job_id, text = list(self._prompts.items())[-1]
            prompt, quotes = continuing(said.prompt, Original(source=job_id, text=text))
        else:
            prompt, quotes = quoting(said.prompt, [Original(source=TASK, text=self.started.description.prompt)])
        return replace(said, prompt=prompt, prompt_quotes=quotes)

    def quoted(self, quote: Quote) -> str | None:
        """Return the text that a quote is from; None if it did not come up here."""
        if quote.source == TASK:
            return self._started.description.prompt if self._started is not None else None
        if quote.source in self._prompts:
            return self._prompts[quote.source]
        found = self._candidates.get(quote.source)
        return text_of(found, quote.path) if found is not None else None

    @property
    def started(self) -> RunStarted:
        """The run's first event.

        Raises:
            ProtocolError: the stream does not begin with it.
        """
        if self._started is None:
            raise ProtocolError("the event stream does not begin with run.started.v1")
        return self._started

    def candidate(self, candidate_id: str) -> Candidate:
        """Return a program that was written in this run.

        Raises:
            ProtocolError: there is none with this hash.
        """
        if candidate_id not in self._candidates:
            raise ProtocolError(f"the event stream holds no candidate {candidate_id!r}")
        return self._candidates[candidate_id]

    def find(self, candidate_id: str) -> Candidate | None:
        """Return a program of this run; none if there is none with this hash."""
        return self._candidates.get(candidate_id)

    def verdict(self, candidate_id: str) -> Verdict | None:
        """Return the latest verdict on a program; none if it has none."""
        return self._verdicts.get(candidate_id)

    def profile(self, candidate_id: str) -> tuple[WorkloadProfile, ...]:
        """Return what models are told of what the GPU does in a call of a program; empty if that is not known."""
        verdict = self._verdicts.get(candidate_id)
        return told_of(verdict.profile) if isinstance(verdict, Measured) else ()

    def blob(self, artifact_id: str) -> str:
        """Return where an artifact lies among the run's blobs; empty if it was never put there."""
        return self._blobs.get(artifact_id, "")
