"""Facts of a search, including the planner's about its tree, from which its state is folded."""

from __future__ import annotations

from typing import Literal, TypeAlias

from messages.base import Message, Usage
from messages.commands import Purpose, WriteMode
from messages.edits import Refusal
from messages.models import Lineup
from messages.settings import Budget, SearchSettings
from messages.steering import SteeringFact
from messages.tasks import Target
from messages.verdicts import Fate, Interval

Origin: TypeAlias = Literal["model", "machine", "person"]
CallPurpose: TypeAlias = Literal["analyse", "revise"]


class NodeInserted(Message, frozen=True, kw_only=True, tag="node.inserted.v1"):
    """A new action was added to the tree."""

    node_id: str
    parent_id: str
    title: str
    description: str
    difficulty: int
    priority: float
    expected_gain: float | None = None
    """Expected factor over the base; None: no expectation."""
    second_id: str = ""
    """A closed node of another branch with a technique to merge; empty: none."""
    origin: Origin = "model"
    earlier: str = ""
    """Its outcome in the run it was inherited from; empty for actions of this run."""


class NodeUpdated(Message, frozen=True, kw_only=True, tag="node.updated.v1"):
    """Beliefs about an action changed; null: unchanged."""

    node_id: str
    title: str | None = None
    description: str | None = None
    difficulty: int | None = None
    priority: float | None = None
    expected_gain: float | None = None


class NodePruned(Message, frozen=True, kw_only=True, tag="node.pruned.v1"):
    """An action was given up: if in flight, when its branches end; if closed, it gets no more children."""

    node_id: str
    reason: str


class NodeSpent(Message, frozen=True, kw_only=True, tag="node.spent.v1"):
    """A closed node will get no further children."""

    node_id: str


class PlanRequested(Message, frozen=True, kw_only=True, tag="plan.requested.v1"):
    """The planner's model was asked for edits. Reports that arrive meanwhile wait for the next call (group commit)."""

    job_id: str
    purpose: CallPurpose
    branch_ids: tuple[str, ...] = ()
    """Finished branches that this call reports."""
    wanted: int = 0
    """New actions asked for."""
    childless: tuple[str, ...] = ()
    """Closed nodes without an open child, asked about once."""
    refusals: tuple[Refusal, ...] = ()
    """Refusals of the previous answer."""
    tries: int = 0
    """Refusals so far."""
    renews: bool = False
    """The whole tree is written for this call; otherwise only changes since earlier calls."""
    lost: int = 0
    """Times that the infrastructure lost this question before."""


class EditsRefused(Message, frozen=True, kw_only=True, tag="edits.refused.v1"):
    """A script was refused as a whole; nothing of it was applied."""

    job_id: str
    refusals: tuple[Refusal, ...]


class EditsApplied(Message, frozen=True, kw_only=True, tag="edits.applied.v1"):
    """A script took effect, whole or (after the last refusal) in the part that depends on nothing refused."""

    job_id: str
    changes: tuple[NodeInserted | NodeUpdated | NodePruned, ...]
    refusals: tuple[Refusal, ...] = ()
    """Refused edits."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()


class PlanAbandoned(Message, frozen=True, kw_only=True, tag="plan.abandoned.v1"):
    """A call for edits gave nothing usable; its reports are dropped, and the machine's rules continue."""

    job_id: str
    reason: str


StoppedBy: TypeAlias = Literal[
    "rounds", "wall_clock", "calls", "tokens", "cost", "target", "exhausted", "infrastructure", "interrupted"
]


class SearchOpened(Message, frozen=True, kw_only=True, tag="search.opened.v1"):
    """The run's settings as used by the search."""

    run_id: str
    task_id: str
    target: Target
    settings: SearchSettings
    seed: int
    initial_id: str | None = None
    """Candidate of the root, which is scored first; null if candidates have speedups."""
    lineup: Lineup = Lineup()


class SearchReopened(Message, frozen=True, kw_only=True, tag="search.reopened.v1"):
    """The run continues after a stop, with this budget."""

    budget: Budget
    lost_calls: int = 0
    """Calls that were in flight when the run stopped. They count as paid for, and most of them are repeated."""
    lineup: Lineup | None = None
    """Null: unchanged."""


class QuestionDropped(Message, frozen=True, kw_only=True, tag="question.dropped.v1"):
    """A coder's question is not repeated after a stop: the budget of calls is used up by lost calls."""

    job_id: str


class BranchStarted(Message, frozen=True, kw_only=True, tag="branch.started.v1"):
    """The local refinement of a node began."""

    branch_id: str
    node_id: str
    base_id: str | None
    """Candidate to start from: the nearest closed ancestor's; none: from the reference."""
    second_id: str | None = None
    """Candidate of a second parent, with a technique to merge into the base."""
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
    draft: int = 0
    """Number of the draft of the attempt, from 0. Drafts are written and evaluated at once, and the best is kept."""
    model: str = ""
    """Name of one of several models; empty if there is one."""
    given_id: str | None = None
    """Existing candidate, for which no coder is asked."""
    lost: int = 0
    """Times that the infrastructure lost this question before."""


class BuildRequested(Message, frozen=True, kw_only=True, tag="build.requested.v1"):
    """A candidate was sent to the builders."""

    job_id: str
    branch_id: str
    """Empty if it is built again for its confirmation, for which no branch waits."""
    candidate_id: str
    draft: int = 0
    lost: int = 0
    """Times that the infrastructure lost the candidate's build or evaluation before."""


class EvaluationRequested(Message, frozen=True, kw_only=True, tag="evaluation.requested.v1"):
    """A built candidate was sent to the evaluators."""

    job_id: str
    branch_id: str
    candidate_id: str
    artifact_id: str
    purpose: Purpose = "screen"
    keep_above: float | None = None
    """Speedup below which it need not be measured exactly; null: it is timed to the end."""
    draft: int = 0
    lost: int = 0
    """As in `BuildRequested`."""
    build_facts: tuple[str, ...] = ()
    """The compiler's facts about its kernels: registers, spills, shared memory; bounded."""


class InitialRequested(Message, frozen=True, kw_only=True, tag="initial.requested.v1"):
    """The initial program was sent to the evaluators. The search continues meanwhile."""

    job_id: str
    candidate_id: str


class InitialScored(Message, frozen=True, kw_only=True, tag="initial.scored.v1"):
    """The root has its score, or the evaluator gave the initial program none."""

    job_id: str
    candidate_id: str
    fate: Fate
    outcome: str
    credit: float | None = None


class AttemptFinished(Message, frozen=True, kw_only=True, tag="attempt.finished.v1"):
    """An attempt, or one draft of it, has its outcome. An attempt is over when none of its drafts is in flight."""

    branch_id: str
    candidate_id: str | None
    fate: Fate
    """Tag of the verdict; `unusable`: the answer contained no candidate; `declined`: the coder wanted none; `lost`: the
    infrastructure failed."""
    outcome: str
    """One line for people and models."""
    credit: float | None = None
    """Lower bound of the speedup's interval, for timed measured candidates; the score of a scored one. A candidate that
    was stopped early has it, too: it counts for it in the tree, but never becomes the incumbent."""
    speedup: float | None = None
    """Median speedup against the reference; the middle of the interval for a candidate that was stopped early, its
    lower end for an unstable one; None for a score."""
    latency_us: float | None = None
    round: int = 0
    """Number of this evaluation; 0 if nothing was evaluated (a known candidate, no candidate)."""
    improved: bool = False
    """True if it is better than the branch's best by more than the measurement's interval."""
    lease_s: float = 0.0
    """Seconds for which this evaluation held the timing lease."""
    draft: int = 0
    speedup_high: float | None = None
    """Upper bound of the speedup's interval."""
    measured_again: bool = False
    """True if it is correct with an unknown time: the same candidate is measured once more, as another round."""
    evidence: tuple[str, ...] = ()
    """Details for the planner's model besides the outcome: wrong places, each workload's time; bounded."""


class CandidateAwaited(Message, frozen=True, kw_only=True, tag="candidate.awaited.v1"):
    """A branch wrote a candidate that is being evaluated for another branch, and waits for its verdict."""

    branch_id: str
    candidate_id: str
    draft: int = 0


class BranchClosed(Message, frozen=True, kw_only=True, tag="branch.closed.v1"):
    """A branch ended."""

    branch_id: str
    node_id: str
    reason: str
    best_id: str | None
    """Its best correct candidate, attached to the node even if slower than the parent's."""
    expected_gain: float | None = None
    """Expected gain at its beginning: a factor over its base."""
    gain: float | None = None
    """That factor as measured: speedup of the best over that of the base; null if either is missing."""
    gain_interval: Interval | None = None
    """Of `gain`, from the intervals of both."""


class ConfirmationOwed(Message, frozen=True, kw_only=True, tag="confirmation.owed.v1"):
    """A candidate's screening was better than the incumbent. It is provisional until it is measured again."""

    candidate_id: str
    node_id: str
    artifact_id: str
    round: int
    credit: float
    speedup: float
    latency_us: float | None = None


class ConfirmationRequested(Message, frozen=True, kw_only=True, tag="confirmation.requested.v1"):
    """A provisional candidate was sent to the evaluators again, which does not count as a round."""

    job_id: str
    candidate_id: str
    artifact_id: str


class ConfirmationFinished(Message, frozen=True, kw_only=True, tag="confirmation.finished.v1"):
    """A provisional candidate was measured again, and counts with that measurement from now on.

    It becomes the incumbent only by `incumbent.changed.v1`, which follows in that case.
    """

    job_id: str
    candidate_id: str
    node_id: str
    round: int
    """Round of its screening."""
    fate: Fate
    """Tag of the confirming verdict."""
    outcome: str
    """That verdict in one line."""
    screen_credit: float
    screen_speedup: float
    credit: float | None = None
    """Its credit in the tree; null if it was refuted (wrong, crashed, …)."""
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    lease_s: float = 0.0
    """Seconds for which the confirmation held the timing lease."""


class IncumbentChanged(Message, frozen=True, kw_only=True, tag="incumbent.changed.v1"):
    """The run has a new best candidate."""

    candidate_id: str
    node_id: str
    round: int
    credit: float
    speedup: float | None = None
    """Null for a score, which is its credit."""
    latency_us: float | None = None
    screen_speedup: float | None = None
    """Speedup of its screening; null if it was not confirmed."""


class SpendRecorded(Message, frozen=True, kw_only=True, tag="spend.recorded.v1"):
    """An answer was paid for."""

    role: Literal["planner", "coder"]
    usage: Usage
    model: str = ""
    """Name in the run's line-up; if that names none, the endpoint's name."""
    node_id: str = ""
    """Action that a coder was asked for."""
    cost_usd: float | None = None
    """By the run's price for that model; null if it has none."""
    latency_s: float = 0.0
    prompt_bytes: int = 0
    """Length of the question as UTF-8; 0: not counted."""


class TimeNoted(Message, frozen=True, kw_only=True, tag="time.noted.v1"):
    """Wall-clock of the run so far."""

    elapsed_s: float


class LossNoted(Message, frozen=True, kw_only=True, tag="loss.noted.v1"):
    """The infrastructure lost a job. It is requested again under a new id, or the run ends."""

    job_id: str
    error: str
    permanent: bool = False


class RunStopping(Message, frozen=True, kw_only=True, tag="run.stopping.v1"):
    """Nothing new begins; work in flight is finished."""

    stopped_by: StoppedBy
    detail: str = ""


class RunPaused(Message, frozen=True, kw_only=True, tag="run.paused.v1"):
    """Nothing new begins until the run continues."""

    reason: str


class RunContinued(Message, frozen=True, kw_only=True, tag="run.continued.v1"):
    """The run continues after a pause."""


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
    | ConfirmationOwed
    | ConfirmationRequested
    | ConfirmationFinished
    | IncumbentChanged
    | QuestionDropped
    | SpendRecorded
    | TimeNoted
    | LossNoted
    | RunStopping
    | RunPaused
    | RunContinued
    | RunFinished
    | SteeringFact
)


class Decided(Message, frozen=True, kw_only=True, tag="planner.decided.v1"):
    """All facts that followed from one input, in one record: a step is journalled whole or not at all."""

    cause: int
    """Sequence number of the event that was the input."""
    facts: tuple[Fact, ...]
    state_hash: str | None = None
    """Hash of the state after these facts; given whenever their count passes a multiple of ten."""
