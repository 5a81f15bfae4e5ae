"""The state of a search: the fold of its facts. Immutable; its maps are persistent, a change costs what it changes.

Holds ids, numbers and one-line outcomes. Programs, prompts and build logs stay in the events that brought them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeGuard

import msgspec
from rpds import HashTrieMap, HashTrieSet

from actors.planner.core.arms import Arm
from actors.planner.core.branch import Attempt, Branch, Draft, Report, Score, better
from messages.base import ROOT, Usage
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    Fact,
    InitialRequested,
    Origin,
    PlanRequested,
    StoppedBy,
    WriteRequested,
)
from messages.models import Lineup
from messages.settings import SearchSettings
from messages.steering import Audience
from messages.tasks import Target
from messages.verdicts import Fate

__all__ = ("Attempt", "Branch", "Draft", "Report", "Score", "better")  # of `branch`, for whoever reads a state
NodeState: TypeAlias = Literal["open", "in_flight", "closed", "pruned"]
Status: TypeAlias = Literal["new", "running", "stopping", "finished"]
Requested: TypeAlias = (
    WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested | PlanRequested
)

PAUSES: frozenset[StoppedBy] = frozenset({"interrupted", "infrastructure"})
"""Ends that leave branches in the middle; a resumed run takes them up."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An element of the world model: an action, and what came of it."""

    node_id: str
    parent_id: str
    """Empty for the root."""
    title: str
    description: str = ""
    difficulty: int = 1
    priority: float = 0.0
    """V, as the planner's model last said it."""
    expected_gain: float | None = None
    """Factor over its base that it is expected to bring, as the planner's model last said it."""
    second_id: str = ""
    """A node of another branch whose technique is to be merged; empty: none."""
    origin: Origin = "model"
    state: NodeState = "open"
    depth: int = 0
    children: tuple[str, ...] = ()
    live_children: int = 0
    """Of these, open or in flight."""
    child_rounds: int = 0
    """Evaluations spent on its children."""
    best: Score | None = None
    """Attached when its first branch with a correct candidate ended; the best over its branches.
    The root has one where candidates are scored: the initial program's."""
    base: Score | None = None
    """What `best` was built on; None: the reference, or there is no best."""
    expected_then: float | None = None
    """What was expected of it when the branch began that brought `best`, or, without one, its latest branch."""
    in_flight: int = 0
    """Branches at work on it now."""
    samples: int = 0
    """Extra samples drawn for it while the planner's model was thinking."""
    tries: int = 0
    """Branches that ended, extra samples not counted."""
    failures: int = 0
    """Of these, without a correct candidate."""
    rounds: int = 0
    """Evaluations spent on it."""
    fates: tuple[tuple[Fate, int], ...] = ()
    """How often its attempts met each fate, in order of first appearance."""
    prune_reason: str = ""
    """Set when it was pruned, or is to be when its branches end."""
    given_up: bool = False
    """Pruned by the machine, after too many failures."""
    asked: bool = False
    """The planner was asked for children."""
    spent: bool = False
    """Closed, and gets no further children."""
    earlier: str = ""
    """What came of it in the run that it was inherited from."""
    given_id: str | None = None
    """Candidate that its first attempt is."""
    pinned: int = 0
    """When a person had it chosen next, in facts; 0: nobody has, or it was."""
    boost: float = 0.0
    """What a person adds to its score."""
    forbidden: str | None = None
    """Why a person ruled it out; None: nobody has."""
    barred: bool = False
    """It, or a node above it, is forbidden."""

    @property
    def told_form(self) -> tuple[object, ...]:
        """What of it the planner's model is told: while this stays the same, so does its line."""
        return (
            self.title, self.priority, self.difficulty, self.expected_gain, self.best, self.base, self.tries,
            self.state == "closed", self.state == "pruned", self.spent, self.forbidden, self.barred, self.pinned,
            self.boost,
        )  # fmt: skip

    @property
    def live(self) -> bool:
        """Something may still come of it by itself."""
        return self.state == "in_flight" or (self.state == "open" and not self.barred)

    @property
    def barren(self) -> bool:
        """Closed, may get children, and has none that is live. The root's children are nobody's duty."""
        is_done = self.spent or self.barred or self.live_children or self.node_id == ROOT
        return self.state == "closed" and not is_done


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The stored verdict on a candidate: nothing is evaluated twice for the same purpose."""

    candidate_id: str
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    evaluations: int = 1
    node_id: str = ""
    """Node for which it was evaluated."""
    confirmed: bool = False
    """It was measured again, whatever came of it; that is done once."""


class Provisional(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate whose screening was better than the incumbent, and that has not been confirmed."""

    candidate_id: str
    node_id: str
    artifact_id: str
    round: int
    credit: float
    speedup: float
    latency_us: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request without an answer yet."""

    request: Requested
    withheld: bool = False
    """Decided while the run was being stopped, or a question of a run that is paused: not sent before it goes on."""
    reopened: bool = False
    """It was under way when the run was resumed: news of its loss may be from before, and is no reason to stop."""


class Incumbent(msgspec.Struct, frozen=True, kw_only=True):
    """The best measured candidate of the run."""

    candidate_id: str
    node_id: str
    round: int
    credit: float
    speedup: float | None = None
    """None where candidates are scored."""
    latency_us: float | None = None
    screen_speedup: float | None = None
    """What its screening had said; None if it was not confirmed."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The tree as the planner's model was last told it whole, and what its text depends on besides."""

    nodes: HashTrieMap[str, Node]
    round: int
    incumbent_id: str | None
    """Its node."""
    bytes_per_token: float
    """As learned by then: what fits into the budget stays what it was."""
    size: int
    """Characters, about."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one call for edits added to what the planner's model had been told before."""

    round: int
    nodes: tuple[Node, ...]
    """Nodes that were new, or of which something else was to be told."""
    reports: tuple[Report, ...]
    subjects: tuple[Node, ...]
    """The node of each report as it was then."""
    incumbent: Incumbent | None
    size: int


class TokenRate(msgspec.Struct, frozen=True, kw_only=True):
    """How a model of the planner's counts prompts."""

    model: str
    prompt_bytes: int = 0
    tokens: int = 0


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants minded."""

    number: int
    text: str
    to: Audience


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what happens next."""

    run_id: str = ""
    task_id: str = ""
    target: Target | None = None
    settings: SearchSettings = SearchSettings()
    seed: int = 0
    initial_id: str | None = None
    """Candidate that the root stands for, where candidates are scored."""
    status: Status = "new"
    stopped_by: StoppedBy | None = None
    stop_detail: str = ""
    paused: bool = False
    """Nothing new begins; answers under way are still taken in, built and evaluated."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    """Those that hold, oldest first."""
    instructions_given: int = 0
    """Those that were forgotten included; numbers the next."""
    nodes: HashTrieMap[str, Node] = HashTrieMap()
    """By id; ids are `n0` (the root), `n1`, … in order of insertion."""
    frontier_ids: HashTrieSet[str] = HashTrieSet()
    """Index: ids of open nodes whose parent is closed."""
    barren_ids: HashTrieSet[str] = HashTrieSet()
    """Index: ids of barren nodes."""
    branches: HashTrieMap[str, Branch] = HashTrieMap()
    """Branches at work."""
    jobs: HashTrieMap[str, Job] = HashTrieMap()
    known: HashTrieMap[str, Known] = HashTrieMap()
    provisional: HashTrieMap[str, Provisional] = HashTrieMap()
    """By candidate; all of them are better than the incumbent, as far as their screening goes."""
    reports: tuple[Report, ...] = ()
    snapshot: Snapshot | None = None
    """None: the planner's model was told nothing yet."""
    told: tuple[Told, ...] = ()
    """What was added since."""
    changed_ids: HashTrieSet[str] = HashTrieSet()
    """Index: ids of nodes that are told otherwise than they were."""
    rates: tuple[TokenRate, ...] = ()
    """The model that answered last comes first."""
    dry: bool = False
    """The last call for edits inserted nothing, and nothing was learned since."""
    misread: bool = False
    """The last call for edits inserted nothing because what was said could not be used, or not in all its parts."""
    incumbent: Incumbent | None = None
    rounds: int = 0
    idle_attempts: int = 0
    """Attempts in a row that led to no evaluation."""
    losses: int = 0
    """Jobs in a row that the infrastructure lost."""
    issued: int = 0
    """Jobs and branches so far; makes ids."""
    facts: int = 0
    lost_calls: int = 0
    """Questions that were under way when the run was stopped or killed."""
    screen_s: float = 0.0
    """Seconds for which screenings held the timing lease."""
    confirm_s: float = 0.0
    """The same for confirmations."""
    usage_planner: Usage = Usage()
    usage_coder: Usage = Usage()
    lineup: Lineup = Lineup()
    arms: tuple[Arm, ...] = ()
    """The records of several coder models, as the line-up names them; none if there is one."""
    cost_usd: float = 0.0
    """Of all answers whose price is known."""
    planner_s: float = 0.0
    """Seconds that the planner's model took for its answers."""
    begun: int = 0
    """Branches that began since it was last asked, extra samples not counted."""
    elapsed_s: float = 0.0
    entries_hash: int = 0
    """Exclusive or of the hashes of all entries of all maps; see `state_hash`."""

    @property
    def running(self) -> bool:
        """New work may begin."""
        return self.status == "running"

    @property
    def finished(self) -> bool:
        """Nothing more happens unless the run is resumed."""
        return self.status == "finished"

    @property
    def pausing(self) -> bool:
        """The run is being stopped in the middle, to be resumed; otherwise what was written is still evaluated."""
        return self.status == "stopping" and self.stopped_by in PAUSES

    @property
    def ending(self) -> bool:
        """The run is being stopped for good, by its budget or because nothing is left to try."""
        return self.status == "stopping" and not self.pausing

    @property
    def scored(self) -> bool:
        """Candidates have scores, of any sign and scale, instead of speedups."""
        return self.initial_id is not None

    @property
    def plan(self) -> PlanRequested | None:
        """The call for edits that is in flight."""
        for job in self.jobs.values():
            if isinstance(job.request, PlanRequested):
                return job.request
        return None

    @property
    def confirming(self) -> bool:
        """A provisional candidate is being measured again, or built for that."""
        return any(is_confirmation(job.request) for job in self.jobs.values())

    @property
    def questions(self) -> list[WriteRequested | PlanRequested]:
        """Questions to models that are under way, oldest first; not those that are withheld."""
        asked = [job.request for job in self.jobs.values() if not job.withheld]
        found = [request for request in asked if is_question(request)]
        return sorted(found, key=lambda request: number_of(request.job_id))

    @property
    def calls(self) -> int:
        """Questions that are paid for, as far as anybody knows."""
        return self.usage.calls + self.lost_calls

    @property
    def usage(self) -> Usage:
        """What the run's models cost so far."""
        return self.usage_planner.plus(self.usage_coder)

    def node(self, node_id: str) -> Node:
        """Return a node that exists."""
        return self.nodes[node_id]


def is_confirmation(request: Requested) -> TypeGuard[ConfirmationRequested | BuildRequested]:
    """Say whether a request serves the confirmation of a candidate."""
    return isinstance(request, ConfirmationRequested) or (isinstance(request, BuildRequested) and not request.branch_id)


def is_question(request: Requested | Fact) -> TypeGuard[WriteRequested | PlanRequested]:
    """Say whether a model is asked: not for a candidate that is there already."""
    return isinstance(request, PlanRequested) or (isinstance(request, WriteRequested) and request.given_id is None)


def number_of(identifier: str) -> int:
    """Return the number at the end of `n12`, `b7` or a job id."""
    digits = identifier[len(identifier.rstrip("0123456789")) :]
    return int(digits)


def in_order(nodes: HashTrieMap[str, Node]) -> list[Node]:
    """Return nodes in order of insertion: ids are `n0` … without gaps."""
    return [nodes[f"n{index}"] for index in range(len(nodes))]


def active(state: SearchState) -> list[Branch]:
    """Return the branches at work, oldest first."""
    return sorted(state.branches.values(), key=lambda branch: number_of(branch.branch_id))


def root_node() -> Node:
    """Return the root: the reference program, closed from the start."""
    return Node(node_id=ROOT, parent_id="", title="reference", state="closed", asked=True)
