"""The state of a search: an immutable fold of its facts. Values only; `evolve` folds facts into them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal, TypeAlias, TypeGuard

import msgspec
from msgspec.structs import replace
from rpds import HashTrieMap, HashTrieSet

from actors.planner.core.arms import Arm
from messages.base import ROOT, Usage, copied
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
from messages.verdicts import CORRECT_FATES, Fate


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A correct candidate and its measured value."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's interval, or a score; None if the candidate was not timed."""
    speedup: float | None = None
    speedup_high: float | None = None
    """Upper bound of the speedup's interval; None if unknown."""
    latency_us: float | None = None

    @property
    def is_least(self) -> bool:
        """True if `speedup` is only a lower bound because the time was unstable."""
        return self.speedup is not None and self.speedup == self.credit and (self.speedup_high or 0.0) > self.speedup


def better(first: Score | None, second: Score | None) -> Score | None:
    """Return the score with the larger credit; the first on a tie, and the timed one if only one was timed."""
    if first is None or second is None:
        return first or second
    return second if (second.credit or 0.0) > (first.credit or 0.0) else first


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a coder and its outcome; if there were several drafts, the best one's."""

    number: int
    candidate_id: str | None
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    round: int = 0
    """Number of the round; 0 if nothing was evaluated for the attempt."""
    evidence: tuple[str, ...] = ()
    """Facts in addition to the outcome; bounded."""
    others: tuple[str, ...] = ()
    """Outcomes of the attempt's other drafts."""

    @property
    def score(self) -> Score | None:
        """The candidate's score; None unless it is correct."""
        if self.fate not in CORRECT_FATES or self.candidate_id is None:
            return None
        return copied(Score, self)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One answer in progress: being written, built, evaluated, or waiting for another draft's verdict."""

    number: int
    """Number of the draft within its attempt, from 0."""
    job_id: str | None = None
    candidate_id: str | None = None
    """Candidate that is built or evaluated for this draft, or that the draft waits for."""
    awaiting: bool = False
    """True if the same candidate is being evaluated for another draft."""
    model: str = ""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The local refinement of one node."""

    branch_id: str
    node_id: str
    base: Score | None
    """The parent's candidate; None for the reference."""
    second: Score | None = None
    """Candidate of a second parent, to be merged into the base."""
    expected_gain: float | None = None
    attempts: tuple[Attempt, ...] = ()
    best: Score | None = None
    stale: int = 0
    """Consecutive attempts without improvement."""
    attempt_limit: int | None = None
    drafts: tuple[Draft, ...] = ()
    """Drafts of the current attempt that are in progress."""
    ended: tuple[Attempt, ...] = ()
    """Outcomes of the current attempt's other drafts."""
    improved: bool = False
    """True if one of `ended` was better than all attempts before."""
    sample: int = 0
    """Number of earlier branches and extra samples on this node."""

    @property
    def extra(self) -> bool:
        """True for an extra sample: a single attempt at a node that another branch refines."""
        return self.attempt_limit is not None

    @property
    def jobs(self) -> tuple[str, ...]:
        """Jobs that the branch waits for."""
        return tuple(draft.job_id for draft in self.drafts if draft.job_id is not None)

    def draft(self, number: int) -> Draft:
        """Return a draft in progress, or an empty one."""
        return next((draft for draft in self.drafts if draft.number == number), Draft(number=number))

    def with_draft(self, draft: Draft) -> Branch:
        """Return the branch with this draft added or replaced."""
        kept = [other for other in self.drafts if other.number != draft.number]
        return replace(self, drafts=tuple(sorted([*kept, draft], key=lambda other: other.number)))

    def without_draft(self, number: int) -> Branch:
        """Return the branch without a draft; removing the last one ends the attempt."""
        left = tuple(draft for draft in self.drafts if draft.number != number)
        branch = replace(self, drafts=left)
        return branch if left else branch.concluded()

    def concluded(self) -> Branch:
        """Return the branch with the best of `ended` appended as an attempt."""
        if not self.ended:
            return self
        ranked = sorted(self.ended, key=_promise)
        best, others = ranked[0], tuple(attempt.outcome for attempt in ranked[1:])
        return replace(
            self,
            attempts=(*self.attempts, replace(best, number=len(self.attempts) + 1, others=others)),
            stale=0 if self.improved else self.stale + 1,
            ended=(),
            improved=False,
        )


_NEARNESS: tuple[Fate, ...] = (
    "wrong", "timed_out", "crashed", "rejected", "quarantined", "did_not_build", "declined", "unusable",
)  # fmt: skip
"""Order of statuses by closeness to a correct candidate; if all drafts failed, the closest is kept."""


def _promise(attempt: Attempt) -> tuple[int, float]:
    """Rank drafts: correct ones by credit, others by how far they got, then by when they ended."""
    if attempt.fate in CORRECT_FATES:
        return -1, -(attempt.credit or 0.0)
    return _NEARNESS.index(attempt.fate) if attempt.fate in _NEARNESS else len(_NEARNESS), 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished branch that has not been reported to the planner's model."""

    branch_id: str
    node_id: str
    reason: str
    base: Score | None
    best: Score | None
    attempts: tuple[Attempt, ...]
    second: Score | None = None
    expected_gain: float | None = None
    extra: bool = False
    """True for an extra sample, which is no reason to call the model."""
    refuted: bool = False
    """True if an attached candidate was refuted by its confirmation."""
    told: bool = False
    """True if a call in flight reports it."""


NodeState: TypeAlias = Literal["open", "in_flight", "closed", "pruned"]
Status: TypeAlias = Literal["new", "running", "stopping", "finished"]
Requested: TypeAlias = (
    WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested | PlanRequested
)

PAUSES: frozenset[StoppedBy] = frozenset({"interrupted", "infrastructure"})
"""Stop reasons after which a resumed run continues with its branches."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An element of the world model: an action and its results."""

    node_id: str
    parent_id: str
    """Parent's id; empty for the root."""
    title: str
    description: str = ""
    difficulty: int = 1
    priority: float = 0.0
    """V, as last set by the planner's model."""
    expected_gain: float | None = None
    """Expected factor over its base, as last set by the planner's model."""
    second_id: str = ""
    """Node of another branch to merge; empty if none."""
    origin: Origin = "model"
    state: NodeState = "open"
    depth: int = 0
    children: tuple[str, ...] = ()
    live_children: int = 0
    """Children that are open or in flight."""
    child_rounds: int = 0
    best: Score | None = None
    """Best correct candidate of its ended branches. For scored candidates, the root has the initial program's."""
    base: Score | None = None
    """Base of `best`; None for the reference."""
    expected_then: float | None = None
    """Expected gain at the start of the branch that produced `best`, else of the latest branch."""
    in_flight: int = 0
    """Number of branches that currently refine it."""
    samples: int = 0
    """Number of extra samples drawn for it."""
    tries: int = 0
    """Ended branches, not counting extra samples."""
    failures: int = 0
    """Tries without a correct candidate."""
    rounds: int = 0
    fates: tuple[tuple[Fate, int], ...] = ()
    """Number of attempts by status, in order of first appearance."""
    prune_reason: str = ""
    """Reason for pruning; set when the node is pruned, or will be once its branches end."""
    given_up: bool = False
    """True if the machine pruned it after too many failures."""
    asked: bool = False
    """True if the planner was asked for children."""
    spent: bool = False
    """True if it is closed and gets no further children."""
    earlier: str = ""
    """Outcome in the run from which it was inherited."""
    given_id: str | None = None
    """Candidate used as its first attempt."""
    pinned: int = 0
    """Number of the fact by which a person pinned it; 0 if not pinned."""
    boost: float = 0.0
    """Amount that a person added to its score."""
    forbidden: str | None = None
    """A person's reason for ruling it out."""
    barred: bool = False
    """True if the node or an ancestor is forbidden."""

    @property
    def told_form(self) -> tuple[object, ...]:
        """Everything that the planner's model sees of the node."""
        return (
            self.title, self.priority, self.difficulty, self.expected_gain, self.best, self.base, self.tries,
            self.state == "closed", self.state == "pruned", self.spent, self.forbidden, self.barred, self.pinned,
            self.boost,
        )  # fmt: skip

    @property
    def live(self) -> bool:
        """True if in flight, or open and not barred."""
        return self.state == "in_flight" or (self.state == "open" and not self.barred)

    @property
    def barren(self) -> bool:
        """True if closed and able to have children, but none is live. The root is never barren."""
        is_done = self.spent or self.barred or self.live_children or self.node_id == ROOT
        return self.state == "closed" and not is_done


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The stored verdict on a candidate, so that nothing is evaluated twice for the same purpose."""

    candidate_id: str
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    evaluations: int = 1
    node_id: str = ""
    confirmed: bool = False
    """True if it was measured a second time, whatever the outcome."""


class Provisional(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that beats the incumbent in its screening and is not yet confirmed."""

    candidate_id: str
    node_id: str
    artifact_id: str
    round: int
    credit: float
    speedup: float
    latency_us: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An unanswered request."""

    request: Requested
    withheld: bool = False
    """True if decided during a stop, or a question of a paused run; sent when the run continues."""
    reopened: bool = False
    """True if in flight when the run was resumed; its loss is no reason to stop."""


class Incumbent(msgspec.Struct, frozen=True, kw_only=True):
    """The best measured candidate of the run."""

    candidate_id: str
    node_id: str
    round: int
    credit: float
    speedup: float | None = None
    """Speedup; None if candidates are scored."""
    latency_us: float | None = None
    screen_speedup: float | None = None
    """Speedup in the screening; None if it was not confirmed."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The tree as last sent whole to the planner's model."""

    nodes: HashTrieMap[str, Node]
    round: int
    incumbent_id: str | None
    """Id of the incumbent's node."""
    bytes_per_token: float
    """Bytes per token as known at that time; determines what fits into the budget."""
    size: int
    """Approximate number of characters."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Knowledge that one call added for the planner's model."""

    round: int
    nodes: tuple[Node, ...]
    """New or changed nodes."""
    reports: tuple[Report, ...]
    subjects: tuple[Node, ...]
    """The node of each report, as it was at that time."""
    incumbent: Incumbent | None
    size: int


class TokenRate(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt bytes per token of a planner model."""

    model: str
    prompt_bytes: int = 0
    tokens: int = 0


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction from a person."""

    number: int
    text: str
    to: Audience


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines what happens next."""

    run_id: str = ""
    task_id: str = ""
    target: Target | None = None
    settings: SearchSettings = SearchSettings()
    seed: int = 0
    initial_id: str | None = None
    """The root's candidate, if candidates are scored."""
    status: Status = "new"
    stopped_by: StoppedBy | None = None
    stop_detail: str = ""
    paused: bool = False
    """True if nothing new begins; answers in flight are still built and evaluated."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    """Instructions in force, oldest first."""
    instructions_given: int = 0
    """Instructions given so far, including forgotten ones; numbers the next."""
    nodes: HashTrieMap[str, Node] = HashTrieMap()
    """Nodes by id; ids are `n0` (the root), `n1`, … in order of insertion."""
    frontier_ids: HashTrieSet[str] = HashTrieSet()
    """Index: ids of open nodes with a closed parent."""
    barren_ids: HashTrieSet[str] = HashTrieSet()
    branches: HashTrieMap[str, Branch] = HashTrieMap()
    jobs: HashTrieMap[str, Job] = HashTrieMap()
    known: HashTrieMap[str, Known] = HashTrieMap()
    provisional: HashTrieMap[str, Provisional] = HashTrieMap()
    """Provisional candidates by id; each has a better screening than the incumbent."""
    reports: tuple[Report, ...] = ()
    snapshot: Snapshot | None = None
    """None while the planner's model knows nothing yet."""
    told: tuple[Told, ...] = ()
    """Additions since the snapshot."""
    changed_ids: HashTrieSet[str] = HashTrieSet()
    """Index: ids of nodes that changed since a prompt last showed them."""
    rates: tuple[TokenRate, ...] = ()
    """Token rates; the model that answered last comes first."""
    dry: bool = False
    """True if the last call for edits inserted nothing, and nothing was learned since."""
    misread: bool = False
    """True if the last call for edits inserted nothing because its answer was not understood."""
    incumbent: Incumbent | None = None
    rounds: int = 0
    idle_attempts: int = 0
    """Consecutive attempts without an evaluation."""
    losses: int = 0
    """Consecutive jobs lost by the infrastructure."""
    issued: int = 0
    """Number of jobs and branches so far; used to make ids."""
    facts: int = 0
    lost_calls: int = 0
    """Number of questions in flight when the run was stopped or killed."""
    screen_s: float = 0.0
    """Time for which screenings held the timing lease."""
    confirm_s: float = 0.0
    """Time for which confirmations held the timing lease."""
    usage_planner: Usage = Usage()
    usage_coder: Usage = Usage()
    lineup: Lineup = Lineup()
    arms: tuple[Arm, ...] = ()
    """Records of the coder models; empty if there is only one."""
    cost_usd: float = 0.0
    """Cost of all answers with a known price."""
    planner_s: float = 0.0
    begun: int = 0
    """Branches begun since the planner's model was last asked, not counting extra samples."""
    elapsed_s: float = 0.0
    entries_hash: int = 0
    """XOR of the hashes of all map entries; see `state_hash`."""

    @property
    def running(self) -> bool:
        """True if new work may begin."""
        return self.status == "running"

    @property
    def finished(self) -> bool:
        """True if nothing more happens unless the run is resumed."""
        return self.status == "finished"

    @property
    def pausing(self) -> bool:
        """True if the run is being stopped midway, to be resumed later."""
        return self.status == "stopping" and self.stopped_by in PAUSES

    @property
    def ending(self) -> bool:
        """True if the run is being stopped for good; what was written is still evaluated."""
        return self.status == "stopping" and not self.pausing

    @property
    def scored(self) -> bool:
        """True if candidates have scores instead of speedups."""
        return self.initial_id is not None

    @property
    def plan(self) -> PlanRequested | None:
        """The call for edits in flight, if any."""
        for job in self.jobs.values():
            if isinstance(job.request, PlanRequested):
                return job.request
        return None

    @property
    def confirming(self) -> bool:
        """True if a provisional candidate is being measured again, or built for that."""
        return any(is_confirmation(job.request) for job in self.jobs.values())

    @property
    def questions(self) -> list[WriteRequested | PlanRequested]:
        """Model questions in flight, oldest first, without withheld ones."""
        asked = [job.request for job in self.jobs.values() if not job.withheld]
        found = [request for request in asked if is_question(request)]
        return sorted(found, key=lambda request: number_of(request.job_id))

    @property
    def calls(self) -> int:
        """Number of questions that have presumably been paid for."""
        return self.usage.calls + self.lost_calls

    @property
    def usage(self) -> Usage:
        """Usage of all models."""
        return self.usage_planner.plus(self.usage_coder)

    def node(self, node_id: str) -> Node:
        """Return a node, which must exist."""
        return self.nodes[node_id]


def is_confirmation(request: Requested) -> TypeGuard[ConfirmationRequested | BuildRequested]:
    """Return True if a request serves the confirmation of a candidate."""
    return isinstance(request, ConfirmationRequested) or (isinstance(request, BuildRequested) and not request.branch_id)


def is_question(request: Requested | Fact) -> TypeGuard[WriteRequested | PlanRequested]:
    """Return True if a request asks a model, rather than stands for a given candidate."""
    return isinstance(request, PlanRequested) or (isinstance(request, WriteRequested) and request.given_id is None)


def number_of(identifier: str) -> int:
    """Return the number at the end of `n12`, `b7` or a job id."""
    return int(identifier[len(identifier.rstrip("0123456789")) :])


def in_order(nodes: HashTrieMap[str, Node]) -> list[Node]:
    """Return nodes in order of insertion (ids have no gaps)."""
    return [nodes[f"n{index}"] for index in range(len(nodes))]


def active(state: SearchState) -> list[Branch]:
    """Return the active branches, oldest first."""
    return sorted(state.branches.values(), key=lambda branch: number_of(branch.branch_id))


def root_node() -> Node:
    """Return the root: the reference program, closed from the start."""
    return Node(node_id=ROOT, parent_id="", title="reference", state="closed", asked=True)


def frontier(state: SearchState) -> list[Node]:
    """Return the open nodes with a closed or abandoned parent, in order of insertion."""
    return [state.nodes[node_id] for node_id in sorted(state.frontier_ids, key=number_of)]


def ancestors(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the ancestors, nearest first."""
    while node.parent_id:
        node = state.node(node.parent_id)
        yield node


def childless(state: SearchState) -> list[Node]:
    """Return the barren nodes, best first."""
    nodes = [state.nodes[node_id] for node_id in state.barren_ids]
    return sorted(nodes, key=lambda node: (-worth(node), number_of(node.node_id)))


def worth(node: Node) -> float:
    """Return a closed node's credit; 1 for an unscored root, 0 for an untimed candidate."""
    if node.best is None:
        return 1.0 if node.node_id == ROOT else 0.0
    return node.best.credit or 0.0


def with_all_below(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the node and its descendants, parents first."""
    waiting = [node.node_id]
    while waiting:
        found = state.node(waiting.pop())
        yield found
        waiting.extend(found.children)


def live_parent(state: SearchState, node: Node) -> Node:
    """Return the node itself, or its nearest ancestor that was not given up."""
    while node.given_up:
        node = state.node(node.parent_id)
    return node


def path_titles(state: SearchState, node_id: str) -> tuple[str, ...]:
    """Return the titles of the actions from the root's child down to the node."""
    node = state.node(node_id)
    above = [ancestor.title for ancestor in ancestors(state, node) if ancestor.node_id != ROOT]
    return (*reversed(above), node.title)


def settled(node: Node, max_tries: int) -> Node:
    """Return the node in its state after its last branch has ended."""
    if node.best is not None:
        return replace(node, state="closed", spent=node.spent or bool(node.prune_reason))
    if node.prune_reason:
        return replace(node, state="pruned")
    if node.failures >= max_tries:
        reason = f"{node.failures} branches ended without a correct candidate"
        return replace(node, state="pruned", given_up=True, prune_reason=reason)
    return replace(node, state="open")


_encoder = msgspec.msgpack.Encoder()
MapName: TypeAlias = Literal["nodes", "branches", "jobs", "known", "provisional"]
Entry: TypeAlias = Node | Branch | Job | Known | Provisional


def put(state: SearchState, name: MapName, key: str, value: Entry) -> SearchState:
    """Return the state with one map entry set."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    mixed = state.entries_hash ^ _entry_hash(name, key, entries.get(key)) ^ _entry_hash(name, key, value)
    return msgspec.structs.replace(state, **{name: entries.insert(key, value), "entries_hash": mixed})


def put_node(state: SearchState, node: Node) -> SearchState:
    """Return the state with a node set, and with live-children counts and indexes updated."""
    before = state.nodes.get(node.node_id)
    state = _index(put(state, "nodes", node.node_id, node), node)
    if node.node_id not in state.changed_ids and (before is None or before.told_form != node.told_form):
        state = msgspec.structs.replace(state, changed_ids=state.changed_ids.insert(node.node_id))
    if before is not None and _bears(before) != _bears(node):
        state = _index_below(state, node)
    born = node.live - (before is not None and before.live)
    if not born or not node.parent_id:
        return state
    parent = state.node(node.parent_id)
    return put_node(state, msgspec.structs.replace(parent, live_children=parent.live_children + born))


def _bears(node: Node) -> tuple[bool, bool]:
    return node.state == "closed", node.given_up


def _index_below(state: SearchState, node: Node) -> SearchState:
    for child_id in node.children:
        child = state.node(child_id)
        state = _index(state, child)
        if child.given_up:
            state = _index_below(state, child)
    return state


def _index(state: SearchState, node: Node) -> SearchState:
    may_be_tried = node.state == "open" and not node.barred
    in_frontier = may_be_tried and live_parent(state, state.node(node.parent_id)).state == "closed"
    frontier_ids = _indexed(state.frontier_ids, node.node_id, belongs=in_frontier)
    barren_ids = _indexed(state.barren_ids, node.node_id, belongs=node.barren)
    if frontier_ids is state.frontier_ids and barren_ids is state.barren_ids:
        return state
    return msgspec.structs.replace(state, frontier_ids=frontier_ids, barren_ids=barren_ids)


def _indexed(index: HashTrieSet[str], node_id: str, *, belongs: bool) -> HashTrieSet[str]:
    if belongs == (node_id in index):
        return index
    return index.insert(node_id) if belongs else index.remove(node_id)


def drop(state: SearchState, name: MapName, key: str) -> SearchState:
    """Return the state without one map entry, if it exists."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    if key not in entries:
        return state
    mixed = state.entries_hash ^ _entry_hash(name, key, entries[key])
    return msgspec.structs.replace(state, **{name: entries.remove(key), "entries_hash": mixed})


def state_hash(state: SearchState) -> str:
    """Return a hash (blake2b-128, hex) of the state, at constant cost: maps are covered by `entries_hash`."""
    digest = blake2b(state.entries_hash.to_bytes(16, "little"), digest_size=16)
    for name in _PLAIN_FIELDS:
        digest.update(_encoder.encode((name, getattr(state, name))))
    return digest.hexdigest()


_MAPS: tuple[MapName, ...] = ("nodes", "branches", "jobs", "known", "provisional")
_DERIVED = (*_MAPS, "entries_hash", "frontier_ids", "barren_ids", "changed_ids", "snapshot", "told")
"""Fields that are not hashed, because they follow from the maps and facts or are too large."""
_PLAIN_FIELDS = tuple(name for name in SearchState.__struct_fields__ if name not in _DERIVED)


def _entry_hash(name: MapName, key: str, value: Entry | None) -> int:
    if value is None:
        return 0
    return int.from_bytes(blake2b(_encoder.encode((name, key, value)), digest_size=16).digest(), "little")
