"""Jobs from requests: a request in the state names things by id, a job on the bus carries them."""

from __future__ import annotations

from actors.planner.core.branch import Attempt
from actors.planner.core.state import SearchState
from actors.planner.instructions import told
from actors.planner.texts import Texts
from messages import subjects
from messages.base import Usage
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.events import CandidateWritten, RunStarted
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    InitialRequested,
    WriteRequested,
)
from messages.models import Lineup
from messages.tasks import Action, AttemptBrief, Candidate

_OTHER_CHARS = 120

JobRequest = WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested


def job_for(state: SearchState, texts: Texts, request: JobRequest) -> Command:
    """Return the job that a request stands for, with all that a stateless worker needs."""
    match request:
        case WriteRequested():
            return _write_job(state, texts, request)
        case BuildRequested():
            return BuildCandidate(
                job_id=request.job_id,
                run_id=state.run_id,
                candidate=texts.candidate(request.candidate_id),
                target=texts.started.target,
            ).for_task(texts.started.description)
        case EvaluationRequested() | ConfirmationRequested():
            return EvaluateCandidate(
                job_id=request.job_id,
                run_id=state.run_id,
                task=texts.started.task,
                candidate=texts.candidate(request.candidate_id),
                artifact_id=request.artifact_id,
                artifact_blob=texts.blob(request.artifact_id),
                target=texts.started.target,
                purpose="confirm" if isinstance(request, ConfirmationRequested) else request.purpose,
                keep_above=None if isinstance(request, ConfirmationRequested) else request.keep_above,
            )
        case InitialRequested():
            return EvaluateCandidate(
                job_id=request.job_id,
                run_id=state.run_id,
                task=texts.started.task,
                candidate=texts.candidate(request.candidate_id),
                artifact_id=request.candidate_id,
                target=texts.started.target,
            )


def given_answer(texts: Texts, request: WriteRequested, given_id: str) -> CandidateWritten:
    """Return what a coder would say if it had written a candidate that is there already."""
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
    """Return the names of the run's queues for writing: one for each tier of coders, the run's own first."""
    tiers = dict.fromkeys((started.tier, *further_tiers(started, lineup)))
    return tuple(subjects.write_jobs(started.run_id, tier) for tier in tiers)


def further_tiers(started: RunStarted, lineup: Lineup) -> tuple[str, ...]:
    """Return which coders besides those of the run's tier have one of its models."""
    return tuple(dict.fromkeys(offer.tier for offer in lineup.coders if offer.tier not in ("", started.tier)))


def queues_of(started: RunStarted) -> tuple[str, str, str]:
    """Return the names of the run's queues for writing (by coders of its tier), building and evaluating."""
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
    node = state.node(branch.node_id)
    base = state.known.get(request.base_id) if request.base_id else None
    second = branch.second
    return WriteCandidate(
        job_id=request.job_id,
        run_id=state.run_id,
        branch_id=branch.branch_id,
        language=texts.started.description.language,
        mode=request.mode,
        task=texts.started.description,
        action=Action(node_id=node.node_id, title=node.title, description=node.description, difficulty=node.difficulty),
        base=_candidate(texts, request.base_id),
        base_outcome=base.outcome if base else "",
        base_profile=texts.profile(request.base_id) if request.base_id else (),
        second=_candidate(texts, second.candidate_id) if second else None,
        second_outcome=state.known[second.candidate_id].outcome if second else "",
        current=_candidate(texts, request.current_id),
        current_verdict=texts.verdict(request.current_id) if request.current_id else None,
        history=tuple(
            AttemptBrief(number=attempt.number, fate=attempt.fate, outcome=_outcome(attempt))
            for attempt in branch.attempts
        ),
        complaint=request.complaint,
        target=texts.started.target,
        edit_format=state.lineup.coder(request.model).edit_format or state.settings.edit_format,
        instructions=tuple(said.text for said in told(state, "coder")),
        sample=branch.sample * state.settings.samples + request.draft,
        model=request.model,
    )


def _outcome(attempt: Attempt) -> str:
    """Return what came of an attempt in one line, its other drafts briefly."""
    others = "; ".join(" ".join(outcome.split())[:_OTHER_CHARS] for outcome in attempt.others)
    return f"{attempt.outcome} (the other drafts of this attempt: {others})" if others else attempt.outcome


def _candidate(texts: Texts, candidate_id: str | None) -> Candidate | None:
    return texts.candidate(candidate_id) if candidate_id else None
