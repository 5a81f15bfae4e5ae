"""Events on a run's stream from outside the planner. Each is durable before it has an effect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from messages.base import EndpointFault, Message, Role, Usage
from messages.edits import EditScript, Refusal
from messages.models import Lineup, Quote
from messages.settings import Budget, Heritage, SearchSettings
from messages.steering import SteeringRequested
from messages.tasks import Candidate, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild, Verdict

JobKind: TypeAlias = Literal["write", "build", "evaluate", "plan"]


class RunStarted(Message, frozen=True, kw_only=True, tag="run.started.v1"):
    """First event of a run: everything that the search depends on."""

    run_id: str
    task: TaskSpec
    description: TaskDescription
    target: Target
    settings: SearchSettings
    seed: int
    initial: Candidate | None = None
    """The program that a search starts from, if its score is not known before it is evaluated."""
    tier: str = "default"
    """Class of the coders' models."""
    weight: int = 1
    """Its share of the workers, relative to other runs."""
    solution: Candidate | None = None
    """A candidate to begin with: measured first, and attached below the root."""
    heritage: Heritage | None = None
    """The world model of an earlier run, to begin with."""
    lineup: Lineup = Lineup()
    """Its models."""


class RunResumed(Message, frozen=True, kw_only=True, tag="run.resumed.v1"):
    """A stopped or crashed run continues, possibly with another budget."""

    run_id: str
    budget: Budget | None = None
    """Null: unchanged."""
    lineup: Lineup | None = None
    """Null: unchanged."""


class CandidateWritten(Message, frozen=True, kw_only=True, tag="candidate.written.v1"):
    """A coder's answer to `WriteCandidate`."""

    job_id: str
    branch_id: str
    candidate: Candidate | None
    complaint: str = ""
    """Reason why the answer contains no candidate, in words that help to do better; empty if it does."""
    notes: tuple[str, ...] = ()
    """Corrections made while reading the answer: a search text that matched except for blanks, code that was escaped
    for HTML."""
    declined: str = ""
    """Reason why the coder, with a correct candidate, sees nothing further worth trying; empty if it does."""
    prompt: str
    """The question to the model, without its quotes."""
    answer: str
    """The model's raw text, without its quotes."""
    prompt_quotes: tuple[Quote, ...] = ()
    answer_quotes: tuple[Quote, ...] = ()
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"
    """The endpoint's finish reason."""
    faults: tuple[EndpointFault, ...] = ()
    """Failed tries before this answer, on every delivery of the job that this process did."""
    worker: str = ""
    """Name of the process that did it; empty in a run of one process."""


class Built(Message, frozen=True, kw_only=True, tag="built"):
    """The compiler accepted a candidate."""

    artifact_id: str
    """Content hash of candidate, target and flags; names a folder of the artifact store."""
    log: str = ""
    """Warnings and remarks, bounded."""
    blob: str = ""
    """Digest of the packed artifact among the run's blobs; empty if builder and evaluator share a store."""


class CandidateBuilt(Message, frozen=True, kw_only=True, tag="candidate.built.v1"):
    """A builder's answer to `BuildCandidate`."""

    job_id: str
    candidate_id: str
    outcome: Built | DidNotBuild
    target: Target
    cached: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the compiler and its children; 0 if cached."""
    worker: str = ""
    """Name of the process that did it; empty in a run of one process."""


class CandidateEvaluated(Message, frozen=True, kw_only=True, tag="evaluation.finished.v1"):
    """An evaluator's verdict on one candidate."""

    job_id: str
    candidate_id: str
    verdict: Verdict
    purpose: str = "screen"
    device: str
    """As the system reports it."""
    unit: str = ""
    """One of several equal devices of its host: `cuda:1`; empty if there is only one."""
    wall_s: float = 0.0
    lease_s: float = 0.0
    """Seconds for which the device's timing lease was held."""
    isolation: tuple[str, ...] = ()
    """Layers that isolated the candidate's process; empty if none was started, or by older evaluators."""
    worker: str = ""
    """Name of the process that did it; empty in a run of one process."""


class EditsProposed(Message, frozen=True, kw_only=True, tag="edits.proposed.v1"):
    """The planner's model answered a call for edits."""

    job_id: str
    script: EditScript | None
    complaint: str = ""
    """Complaint about an answer without an edit script; else empty."""
    notes: tuple[str, ...] = ()
    """Slips that were corrected while reading the script, and fields left out."""
    unread: tuple[Refusal, ...] = ()
    """Edits of the answer that cannot be read, with their positions; `script` contains the others."""
    prompt: str
    """The question to the model, without its quotes."""
    prompt_quotes: tuple[Quote, ...] = ()
    prompt_bytes: int = 0
    """Length of the whole question as UTF-8, including the role's rules; 0: not counted."""
    rules_digest: str = ""
    """blake2b-128, hex, of the rules before the prompt; empty in journals of older releases."""
    answer: str
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"
    """The endpoint's finish reason."""
    faults: tuple[EndpointFault, ...] = ()
    """Failed tries before this answer, on every delivery of the job that this process did."""


class JobLost(Message, frozen=True, kw_only=True, tag="job.lost.v1"):
    """A job could not be done for reasons other than the candidate: dead letter, or a permanent error."""

    job_id: str
    kind: JobKind
    error: str
    permanent: bool = False
    """True if trying again cannot help: wrong key, no such model, no compiler."""
    faults: tuple[EndpointFault, ...] = ()
    """Failed tries of a model call; `error` describes the last one."""


class ClockTicked(Message, frozen=True, kw_only=True, tag="clock.ticked.v1"):
    """Time for the core: seconds of the run, over all its sessions."""

    elapsed_s: float


class StopRequested(Message, frozen=True, kw_only=True, tag="stop.requested.v1"):
    """A person stops the run; jobs in flight are finished, nothing new begins."""

    reason: str


class PauseRequested(Message, frozen=True, kw_only=True, tag="pause.requested.v1"):
    """A person pauses the run: jobs in flight are finished and counted, nothing new begins."""

    reason: str


class ContinueRequested(Message, frozen=True, kw_only=True, tag="continue.requested.v1"):
    """A person continues a paused run."""


class JobsUnserved(Message, frozen=True, kw_only=True, tag="jobs.unserved.v1"):
    """Jobs wait without a worker for them. The search does not react to it; people should."""

    kind: JobKind
    queue: str
    role: Role
    """Missing role."""
    waiting_s: float
    """Time without one."""
    detail: str
    """The missing worker, those that are there, and the command to start one."""


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | CandidateWritten
    | CandidateBuilt
    | CandidateEvaluated
    | EditsProposed
    | JobLost
    | ClockTicked
    | StopRequested
    | PauseRequested
    | ContinueRequested
    | SteeringRequested
    | JobsUnserved
)
