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
    """First event of a run: all that the search depends on."""

    run_id: str
    task: TaskSpec
    description: TaskDescription
    target: Target
    settings: SearchSettings
    seed: int
    initial: Candidate | None = None
    """The program that a search starts from, where its score is not known before it is evaluated."""
    tier: str = "default"
    """Class of models of its coders."""
    weight: int = 1
    """Its share of the workers beside other runs."""
    solution: Candidate | None = None
    """A candidate to begin with: measured first, and hung under the root."""
    heritage: Heritage | None = None
    """The world model of an earlier run, to begin with."""
    lineup: Lineup = Lineup()
    """Its models."""


class RunResumed(Message, frozen=True, kw_only=True, tag="run.resumed.v1"):
    """A stopped or crashed run goes on, perhaps with another budget."""

    run_id: str
    budget: Budget | None = None
    """Null: the one that it had."""
    lineup: Lineup | None = None
    """Likewise."""


class CandidateWritten(Message, frozen=True, kw_only=True, tag="candidate.written.v1"):
    """A coder's answer to `WriteCandidate`."""

    job_id: str
    branch_id: str
    candidate: Candidate | None
    complaint: str = ""
    """Why the answer holds no candidate, in words that help to do better; empty if it does."""
    notes: tuple[str, ...] = ()
    """Corrections on the way from the answer to the candidate: a search text that matched but for its blanks, code that
    was escaped for HTML."""
    declined: str = ""
    """Why the coder, with a correct candidate in hand, sees nothing further worth trying; empty if it does."""
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
    """Digest under which the packed artifact lies among the run's blobs; empty where builder and evaluator share a
    store."""


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
    """Which of several like devices of its host: `cuda:1`; empty where there is one."""
    wall_s: float = 0.0
    lease_s: float = 0.0
    """Seconds for which the device's timing lease was held."""
    isolation: tuple[str, ...] = ()
    """The layers that the candidate's process was kept behind; empty where none was started, or by older evaluators."""
    worker: str = ""
    """Name of the process that did it; empty in a run of one process."""


class EditsProposed(Message, frozen=True, kw_only=True, tag="edits.proposed.v1"):
    """The planner's model answered a call for edits."""

    job_id: str
    script: EditScript | None
    complaint: str = ""
    """Complaint about an answer without an edit script; else empty."""
    notes: tuple[str, ...] = ()
    """Slips that were put right on the way to the script, and fields left out."""
    unread: tuple[Refusal, ...] = ()
    """Edits of the answer that cannot be read, by their positions there; `script` holds the others."""
    prompt: str
    """The question to the model, without its quotes."""
    prompt_quotes: tuple[Quote, ...] = ()
    prompt_bytes: int = 0
    """All that was asked, the rules of the role included, as UTF-8; 0: not counted."""
    rules_digest: str = ""
    """blake2b-128, hex, of the rules that went before the prompt; empty in journals of older releases."""
    answer: str
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"
    """The endpoint's finish reason."""
    faults: tuple[EndpointFault, ...] = ()
    """Failed tries before this answer, on every delivery of the job that this process did."""


class JobLost(Message, frozen=True, kw_only=True, tag="job.lost.v1"):
    """A job could not be done for reasons that are not the candidate's: dead letter, or an error that will not pass."""

    job_id: str
    kind: JobKind
    error: str
    permanent: bool = False
    """True if trying again cannot help: wrong key, no such model, no compiler."""
    faults: tuple[EndpointFault, ...] = ()
    """Failed tries of a model call; the last one is what `error` tells of."""


class ClockTicked(Message, frozen=True, kw_only=True, tag="clock.ticked.v1"):
    """Time for the core: seconds that the run has been going, over all its sessions."""

    elapsed_s: float


class StopRequested(Message, frozen=True, kw_only=True, tag="stop.requested.v1"):
    """A person wants the run to stop; jobs in flight are finished, nothing new begins."""

    reason: str


class PauseRequested(Message, frozen=True, kw_only=True, tag="pause.requested.v1"):
    """A person wants the run to rest: what is in flight is finished and taken in, nothing new begins."""

    reason: str


class ContinueRequested(Message, frozen=True, kw_only=True, tag="continue.requested.v1"):
    """A person wants a resting run to go on."""


class JobsUnserved(Message, frozen=True, kw_only=True, tag="jobs.unserved.v1"):
    """Jobs wait without a worker for them; the search changes nothing for it, people should."""

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
