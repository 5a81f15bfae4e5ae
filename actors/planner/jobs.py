"""Builds jobs from requests: replaces ids in the state by the programs and verdicts from the run's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from actors.planner.core.state import Attempt, SearchState
from actors.planner.prompts import told
from evaluators.hardware.profiles import told_of
from messages import subjects
from messages.base import ProtocolError, Role, Usage, copied
from messages.codec import Body, Record
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    EditsProposed,
    JobKind,
    JobLost,
    RunStarted,
)
from messages.facts import BuildRequested, ConfirmationRequested, EvaluationRequested, InitialRequested, WriteRequested
from messages.models import TASK, Lineup, Original, Quote, continuing, quoting, whole
from messages.steering import Inject, SteeringRequested
from messages.tasks import Action, AttemptBrief, Candidate
from messages.verdicts import DidNotBuild, Measured, Verdict, WorkloadProfile

_PROMPTS_KEPT = 4
"""Number of latest planner prompts kept; the next one quotes the last, or one shortly before it."""


def whole_records(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a run's records, beginning with its first, with quotes in prompts and answers expanded."""
    texts = Texts()
    for record in records:
        texts.take(record.body)
        yield replace(record, body=texts.whole(record.body))


def whole_written(written: CandidateWritten, find: Callable[[Quote], str | None]) -> CandidateWritten:
    """Return a coder's answer with quotes in prompt and answer expanded; `find` returns the quoted texts."""
    prompt = whole(written.prompt, written.prompt_quotes, find)
    answer = whole(written.answer, written.answer_quotes, find)
    return replace(written, prompt=prompt, prompt_quotes=(), answer=answer, answer_quotes=())


def text_of(candidate: Candidate, path: str) -> str | None:
    """Return the text of one of a candidate's files; None if no file has that path."""
    return next((file.text for file in candidate.files if file.path == path), None)


class Texts:
    """Programs, verdicts and prompts of one run."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._candidates: dict[str, Candidate] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._blobs: dict[str, str] = {}
        self._prompts: dict[str, str] = {}
        """Prompts of the planner's jobs, by job id."""

    def take(self, body: Body) -> None:
        """Store the texts of an event."""
        match body:
            case RunStarted():
                self._started = body
                inherited = [node.candidate for node in body.heritage.nodes] if body.heritage else []
                given = (body.initial, body.solution, *inherited)
                self._candidates |= {found.candidate_id: found for found in given if found is not None}
            case (
                SteeringRequested(order=Inject(candidate=candidate))
                | CandidateWritten(candidate=Candidate() as candidate)
            ):
                self._candidates[candidate.candidate_id] = candidate
            case CandidateBuilt(outcome=DidNotBuild() as verdict):
                self._verdicts[body.candidate_id] = verdict
            case CandidateBuilt(outcome=Built() as built) if built.blob:
                self._blobs[built.artifact_id] = built.blob
            case CandidateEvaluated():
                self._verdicts[body.candidate_id] = body.verdict
            case EditsProposed():
                self._prompts[body.job_id] = whole(body.prompt, body.prompt_quotes, self.quoted)
                for old in list(self._prompts)[:-_PROMPTS_KEPT]:
                    del self._prompts[old]
            case _:
                pass

    def whole(self, body: Body) -> Body:
        """Return a stored event with quotes in its prompt and answer expanded."""
        match body:
            case CandidateWritten():
                return whole_written(body, self.quoted)
            case EditsProposed():
                prompt = whole(body.prompt, body.prompt_quotes, self.quoted)
                return replace(body, prompt=prompt, prompt_quotes=())
            case _:
                return body

    def quoting(self, said: EditsProposed | JobLost) -> EditsProposed | JobLost:
        """Return an answer of the planner's model; the part of its prompt shared with the previous one is quoted."""
        if isinstance(said, JobLost):
            return said
        if self._prompts:
            job_id, text = list(self._prompts.items())[-1]
            prompt, quotes = continuing(said.prompt, Original(source=job_id, text=text))
        else:
            prompt, quotes = quoting(said.prompt, [Original(source=TASK, text=self.started.description.prompt)])
        return replace(said, prompt=prompt, prompt_quotes=quotes)

    def quoted(self, quote: Quote) -> str | None:
        """Return the text that a quote refers to; None if it is unknown."""
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
            ProtocolError: the stream does not begin with this event.
        """
        if self._started is None:
            raise ProtocolError("the event stream does not begin with run.started.v1")
        return self._started

    def candidate(self, candidate_id: str) -> Candidate:
        """Return a program of this run.

        Raises:
            ProtocolError: no program has this hash.
        """
        if candidate_id not in self._candidates:
            raise ProtocolError(f"the event stream holds no candidate {candidate_id!r}")
        return self._candidates[candidate_id]

    def find(self, candidate_id: str) -> Candidate | None:
        """Return a program of this run, or None."""
        return self._candidates.get(candidate_id)

    def verdict(self, candidate_id: str) -> Verdict | None:
        """Return the latest verdict on a program, or None."""
        return self._verdicts.get(candidate_id)

    def profile(self, candidate_id: str) -> tuple[WorkloadProfile, ...]:
        """Return the program's GPU profile as shown to models; empty if unknown."""
        verdict = self._verdicts.get(candidate_id)
        return told_of(verdict.profile) if isinstance(verdict, Measured) else ()

    def blob(self, artifact_id: str) -> str:
        """Return the digest of an artifact's blob; empty if there is none."""
        return self._blobs.get(artifact_id, "")


_OTHER_CHARS = 120

KINDS: dict[Role, JobKind] = {"coder": "write", "builder": "build", "evaluator": "evaluate", "planner": "plan"}
JobRequest = WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested


def job_for(state: SearchState, texts: Texts, request: JobRequest) -> Command:
    """Return the job for a request, with everything a stateless worker needs."""
    if isinstance(request, WriteRequested):
        return _write_job(state, texts, request)
    candidate, target = texts.candidate(request.candidate_id), texts.started.target
    if isinstance(request, BuildRequested):
        build = BuildCandidate(job_id=request.job_id, run_id=state.run_id, candidate=candidate, target=target)
        return build.for_task(texts.started.description)
    evaluate = EvaluateCandidate(
        job_id=request.job_id,
        run_id=state.run_id,
        task=texts.started.task,
        candidate=candidate,
        artifact_id=request.candidate_id if isinstance(request, InitialRequested) else request.artifact_id,
        target=target,
    )
    if isinstance(request, InitialRequested):
        return evaluate
    evaluate = replace(evaluate, artifact_blob=texts.blob(request.artifact_id))
    if isinstance(request, ConfirmationRequested):
        return replace(evaluate, purpose="confirm")
    return replace(evaluate, purpose=request.purpose, keep_above=request.keep_above)


def given_answer(texts: Texts, request: WriteRequested, given_id: str) -> CandidateWritten:
    """Return a coder's answer for a candidate that already exists."""
    return CandidateWritten(
        job_id=request.job_id,
        branch_id=request.branch_id,
        candidate=texts.candidate(given_id),
        prompt="",
        answer="",
        model="",
        usage=Usage(),
        latency_s=0.0,
    )


def write_queues(started: RunStarted, lineup: Lineup) -> tuple[str, ...]:
    """Return the names of the run's write queues, one per tier of coders, the run's own tier first."""
    tiers = dict.fromkeys((started.tier, *further_tiers(started, lineup)))
    return tuple(subjects.write_jobs(started.run_id, tier) for tier in tiers)


def further_tiers(started: RunStarted, lineup: Lineup) -> tuple[str, ...]:
    """Return the tiers, other than the run's own, that serve one of its models."""
    return tuple(dict.fromkeys(offer.tier for offer in lineup.coders if offer.tier not in ("", started.tier)))


def queues_of(started: RunStarted) -> tuple[str, str, str]:
    """Return the names of the run's queues for writing (for its own tier), building and evaluating."""
    language, arch = started.description.language, started.target.arch
    return (
        subjects.write_jobs(started.run_id, started.tier),
        subjects.build_jobs(started.run_id, language, arch),
        subjects.evaluate_jobs(started.run_id, language, arch),
    )


def queue_of(started: RunStarted, lineup: Lineup, request: JobRequest) -> str:
    """Return the queue that serves a request."""
    write, build, evaluate = queues_of(started)
    match request:
        case WriteRequested(model=model):
            tiers = [offer.tier for offer in lineup.coders if offer.name == model and offer.tier]
            return subjects.write_jobs(started.run_id, tiers[0]) if tiers else write
        case BuildRequested():
            return build
        case EvaluationRequested() | InitialRequested() | ConfirmationRequested():
            return evaluate


def _write_job(state: SearchState, texts: Texts, request: WriteRequested) -> WriteCandidate:
    branch = state.branches[request.branch_id]
    base = state.known.get(request.base_id) if request.base_id else None
    second = branch.second
    return WriteCandidate(
        job_id=request.job_id,
        run_id=state.run_id,
        branch_id=branch.branch_id,
        language=texts.started.description.language,
        mode=request.mode,
        task=texts.started.description,
        action=copied(Action, state.node(branch.node_id)),
        base=texts.candidate(request.base_id) if request.base_id else None,
        base_outcome=base.outcome if base else "",
        base_profile=texts.profile(request.base_id) if request.base_id else (),
        second=texts.candidate(second.candidate_id) if second else None,
        second_outcome=state.known[second.candidate_id].outcome if second else "",
        current=texts.candidate(request.current_id) if request.current_id else None,
        current_verdict=texts.verdict(request.current_id) if request.current_id else None,
        history=tuple(copied(AttemptBrief, attempt, outcome=_outcome(attempt)) for attempt in branch.attempts),
        complaint=request.complaint,
        target=texts.started.target,
        edit_format=state.lineup.coder(request.model).edit_format or state.settings.edit_format,
        instructions=tuple(said.text for said in told(state, "coder")),
        sample=branch.sample * state.settings.samples + request.draft,
        model=request.model,
    )


def _outcome(attempt: Attempt) -> str:
    others = "; ".join(" ".join(outcome.split())[:_OTHER_CHARS] for outcome in attempt.others)
    return f"{attempt.outcome} (the other drafts of this attempt: {others})" if others else attempt.outcome
