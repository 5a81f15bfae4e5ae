"""The planner's decisions. A run's state is the fold of its facts; they hold ids and outcomes, never program texts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from messages.base import Message, Usage
from messages.commands import Purpose, WriteMode
from messages.edits import Refusal
from messages.settings import Budget, SearchSettings
from messages.tasks import Target
from messages.verdicts import Fate

Origin: TypeAlias = Literal["model", "machine"]
StoppedBy: TypeAlias = Literal[
    "rounds", "wall_clock", "calls", "tokens", "target", "exhausted", "infrastructure", "interrupted"
]
CallPurpose: TypeAlias = Literal["analyse", "revise"]


class SearchOpened(Message, frozen=True, kw_only=True, tag="search.opened.v1"):
    """The run's settings as the search took them."""

    run_id: str
    task_id: str
    target: Target
    settings: SearchSettings
    seed: int
    initial_id: str | None = None
    """Candidate that the root stands for, and that is scored first; null where candidates have speedups."""


class SearchReopened(Message, frozen=True, kw_only=True, tag="search.reopened.v1"):
    """The run goes on after a stop, with this budget."""

    budget: Budget
    lost_calls: int = 0
    """Questions that were under way when the run stopped: they count as paid for, and most of them are asked again."""


class NodeInserted(Message, frozen=True, kw_only=True, tag="node.inserted.v1"):
    """A new action hangs in the tree."""

    node_id: str
    parent_id: str
    title: str
    description: str
    difficulty: int
    priority: float
    origin: Origin = "model"


class NodeUpdated(Message, frozen=True, kw_only=True, tag="node.updated.v1"):
    """What is believed of an action changed; null stays."""

    node_id: str
    title: str | None = None
    description: str | None = None
    difficulty: int | None = None
    priority: float | None = None


class NodePruned(Message, frozen=True, kw_only=True, tag="node.pruned.v1"):
    """An action was given up: if in flight, when its branches end; if closed, it gets no more children."""

    node_id: str
    reason: str


class NodeSpent(Message, frozen=True, kw_only=True, tag="node.spent.v1"):
    """A closed node will get no further children."""

    node_id: str


class PlanRequested(Message, frozen=True, kw_only=True, tag="plan.requested.v1"):
    """The planner's model is asked for edits. Reports that arrive meanwhile wait for the next call (group commit)."""

    job_id: str
    purpose: CallPurpose
    branch_ids: tuple[str, ...] = ()
    """Finished branches that this call tells of."""
    wanted: int = 0
    """New actions asked for."""
    childless: tuple[str, ...] = ()
    """Closed nodes without an open child, asked about once."""
    refusals: tuple[Refusal, ...] = ()
    """Why the previous answer was refused."""
    tries: int = 0
    """Refusals so far."""


class EditsRefused(Message, frozen=True, kw_only=True, tag="edits.refused.v1"):
    """A script was refused as a whole; nothing of it was applied."""

    job_id: str
    refusals: tuple[Refusal, ...]


class EditsApplied(Message, frozen=True, kw_only=True, tag="edits.applied.v1"):
    """A script took effect, whole or (after the last refusal) in the part that depends on nothing refused."""

    job_id: str
    changes: tuple[NodeInserted | NodeUpdated | NodePruned, ...]
    refusals: tuple[Refusal, ...] = ()
    """What was left out, and why."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()


class PlanAbandoned(Message, frozen=True, kw_only=True, tag="plan.abandoned.v1"):
    """A call for edits brought nothing usable; its reports are dropped, the machine's rules go on."""

    job_id: str
    reason: str


class QuestionDropped(Message, frozen=True, kw_only=True, tag="question.dropped.v1"):
    """A coder's question is not asked again after a stop: the budget of calls is spent on what was lost."""

    job_id: str


class BranchStarted(Message, frozen=True, kw_only=True, tag="branch.started.v1"):
    """The local refinement of a node began."""

    branch_id: str
    node_id: str
    base_id: str | None
    """Candidate to start from: the nearest closed ancestor's; none: from the reference."""
    attempt_limit: int | None = None
    """1 for an extra sample drawn while the planner thinks."""


class WriteRequested(Message, frozen=True, kw_only=True, tag="write.requested.v1"):
    """A coder was asked for the branch's next attempt."""

    job_id: str
    branch_id: str
    mode: WriteMode
    base_id: str | None
    current_id: str | None
    complaint: str = ""


class BuildRequested(Message, frozen=True, kw_only=True, tag="build.requested.v1"):
    """A candidate was sent to the builders."""

    job_id: str
    branch_id: str
    candidate_id: str


class EvaluationRequested(Message, frozen=True, kw_only=True, tag="evaluation.requested.v1"):
    """A built candidate was sent to the evaluators."""

    job_id: str
    branch_id: str
    candidate_id: str
    artifact_id: str
    purpose: Purpose = "screen"


class InitialRequested(Message, frozen=True, kw_only=True, tag="initial.requested.v1"):
    """The initial program was sent to the evaluators. Meanwhile the search goes on."""

    job_id: str
    candidate_id: str


class InitialScored(Message, frozen=True, kw_only=True, tag="initial.scored.v1"):
    """The root has its score, or it turned out that the evaluator gives the initial program none."""

    job_id: str
    candidate_id: str
    fate: Fate
    outcome: str
    credit: float | None = None


class AttemptFinished(Message, frozen=True, kw_only=True, tag="attempt.finished.v1"):
    """An attempt has its outcome."""

    branch_id: str
    candidate_id: str | None
    fate: Fate
    """Tag of the verdict; `unusable` where the answer held no candidate, `declined` where it wanted none; `lost` where
    the infrastructure failed."""
    outcome: str
    """One line for people and models."""
    credit: float | None = None
    """Lower bound of the speedup's interval, for timed measured candidates; a scored one's score."""
    speedup: float | None = None
    """Median speedup against the reference; null for a score."""
    latency_us: float | None = None
    round: int = 0
    """Number of this evaluation; 0 if nothing was evaluated (a known candidate, no candidate)."""
    improved: bool = False
    """True if it is better than the branch's best by more than the measurement's interval."""


class CandidateAwaited(Message, frozen=True, kw_only=True, tag="candidate.awaited.v1"):
    """A branch wrote what another is evaluating just now; it waits for that verdict."""

    branch_id: str
    candidate_id: str


class BranchClosed(Message, frozen=True, kw_only=True, tag="branch.closed.v1"):
    """A branch ended."""

    branch_id: str
    node_id: str
    reason: str
    best_id: str | None
    """Its best correct candidate, attached to the node even if slower than the parent's."""


class IncumbentChanged(Message, frozen=True, kw_only=True, tag="incumbent.changed.v1"):
    """The run has a new best candidate."""

    candidate_id: str
    node_id: str
    round: int
    credit: float
    speedup: float | None = None
    """Null for a score, which is its credit."""
    latency_us: float | None = None


class SpendRecorded(Message, frozen=True, kw_only=True, tag="spend.recorded.v1"):
    """An answer was paid for."""

    role: Literal["planner", "coder"]
    usage: Usage


class TimeNoted(Message, frozen=True, kw_only=True, tag="time.noted.v1"):
    """Wall-clock of the run so far."""

    elapsed_s: float


class LossNoted(Message, frozen=True, kw_only=True, tag="loss.noted.v1"):
    """The infrastructure lost a job; it is asked for again under a new id, or the run gives up."""

    job_id: str
    error: str
    permanent: bool = False


class RunStopping(Message, frozen=True, kw_only=True, tag="run.stopping.v1"):
    """Nothing new begins; what is in flight is finished."""

    stopped_by: StoppedBy
    detail: str = ""


class RunFinished(Message, frozen=True, kw_only=True, tag="run.finished.v1"):
    """The search is over (for `interrupted` and `infrastructure`: until it is resumed)."""

    stopped_by: StoppedBy
    detail: str = ""
    rounds: int
    best_id: str | None
    credit: float | None
    speedup: float | None


Fact: TypeAlias = (
    SearchOpened
    | SearchReopened
    | NodeInserted
    | NodeUpdated
    | NodePruned
    | NodeSpent
    | PlanRequested
    | EditsRefused
    | EditsApplied
    | PlanAbandoned
    | BranchStarted
    | WriteRequested
    | BuildRequested
    | EvaluationRequested
    | InitialRequested
    | InitialScored
    | AttemptFinished
    | CandidateAwaited
    | BranchClosed
    | IncumbentChanged
    | QuestionDropped
    | SpendRecorded
    | TimeNoted
    | LossNoted
    | RunStopping
    | RunFinished
)


class Decided(Message, frozen=True, kw_only=True, tag="planner.decided.v1"):
    """All facts that followed from one input, in one record: a step is journalled whole or not at all."""

    cause: int
    """Sequence number of the event that was the input."""
    facts: tuple[Fact, ...]
    state_hash: str | None = None
    """Hash of the state after these facts; given whenever their count passes a multiple of ten."""
