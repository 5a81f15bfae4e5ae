"""Jobs from requests: a request in the state names things by id, a job on the bus carries them."""

from __future__ import annotations

from actors.planner.core.state import SearchState
from actors.planner.texts import Texts
from messages import subjects
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.events import RunStarted
from messages.facts import BuildRequested, EvaluationRequested, InitialRequested, WriteRequested
from messages.tasks import Action, AttemptBrief, Candidate

JobRequest = WriteRequested | BuildRequested | EvaluationRequested | InitialRequested


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
            )
        case EvaluationRequested():
            return EvaluateCandidate(
                job_id=request.job_id,
                run_id=state.run_id,
                task=texts.started.task,
                candidate=texts.candidate(request.candidate_id),
                artifact_id=request.artifact_id,
                target=texts.started.target,
                purpose=request.purpose,
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


def queues_of(started: RunStarted) -> tuple[str, str, str]:
    """Return the names of the run's queues for writing, building and evaluating."""
    language, arch = started.description.language, started.target.arch
    return (
        subjects.write_jobs(started.run_id),
        subjects.build_jobs(started.run_id, language, arch),
        subjects.evaluate_jobs(started.run_id, language, arch),
    )


def queue_of(started: RunStarted, request: JobRequest) -> str:
    """Return the queue that serves a request."""
    write, build, evaluate = queues_of(started)
    match request:
        case WriteRequested():
            return write
        case BuildRequested():
            return build
        case EvaluationRequested() | InitialRequested():
            return evaluate


def _write_job(state: SearchState, texts: Texts, request: WriteRequested) -> WriteCandidate:
    branch = state.branches[request.branch_id]
    node = state.node(branch.node_id)
    base = state.known.get(request.base_id) if request.base_id else None
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
        current=_candidate(texts, request.current_id),
        current_verdict=texts.verdict(request.current_id) if request.current_id else None,
        history=tuple(
            AttemptBrief(number=attempt.number, fate=attempt.fate, outcome=attempt.outcome)
            for attempt in branch.attempts
        ),
        complaint=request.complaint,
        sample=branch.sample,
    )


def _candidate(texts: Texts, candidate_id: str | None) -> Candidate | None:
    return texts.candidate(candidate_id) if candidate_id else None
