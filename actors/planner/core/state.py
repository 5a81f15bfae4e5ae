"""The state of a search: the fold of its facts. Immutable; its maps are persistent, a change costs what it changes.

Holds ids, numbers and one-line outcomes. Programs, prompts and build logs stay in the events that brought them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
from rpds import HashTrieMap, HashTrieSet

from messages.base import ROOT, Usage
from messages.facts import (
    BuildRequested,
    EvaluationRequested,
    InitialRequested,
    Origin,
    PlanRequested,
    StoppedBy,
    WriteRequested,
)
from messages.settings import SearchSettings
from messages.tasks import Target
from messages.verdicts import Fate

NodeState: TypeAlias = Literal["open", "in_flight", "closed", "pruned"]
Status: TypeAlias = Literal["new", "running", "stopping", "finished"]
Requested: TypeAlias = WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | PlanRequested

PAUSES: frozenset[StoppedBy] = frozenset({"interrupted", "infrastructure"})
"""Ends that leave branches in the middle; a resumed run takes them up."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A correct candidate and what it is worth."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's interval, or a score; None where it was not timed."""
    speedup: float | None = None
    latency_us: float | None = None


def better(first: Score | None, second: Score | None) -> Score | None:
    """Return the one with the larger credit; the first on a tie, and the timed one where only one was timed."""
    if first is None or second is None:
        return first or second
    return second if (second.credit or 0.0) > (first.credit or 0.0) else first


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

    @property
    def live(self) -> bool:
        """Something may still come of it by itself."""
        return self.state in ("open", "in_flight")

    @property
    def barren(self) -> bool:
        """Closed, may get children, and has none that is live. The root's children are nobody's duty."""
        return self.state == "closed" and not self.spent and not self.live_children and self.node_id != ROOT


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a coder and its outcome."""

    number: int
    candidate_id: str | None
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    latency_us: float | None = None
    round: int = 0
    """0 if nothing was evaluated for it."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The local refinement of one node."""

    branch_id: str
    node_id: str
    base: Score | None
    """The parent's candidate; None: the reference."""
    attempts: tuple[Attempt, ...] = ()
    best: Score | None = None
    stale: int = 0
    """Attempts in a row without improvement."""
    attempt_limit: int | None = None
    job_id: str | None = None
    """The job it waits for."""
    candidate_id: str | None = None
    """The candidate that is being built or evaluated for it, or whose verdict it awaits."""
    awaiting: bool = False
    """Another branch is having the same candidate evaluated."""
    sample: int = 0
    """How many branches and extra samples there were on this node before it."""

    @property
    def extra(self) -> bool:
        """It is an extra sample: one attempt for a node that another branch refines."""
        return self.attempt_limit is not None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished branch that the planner's model has not been told of."""

    branch_id: str
    node_id: str
    reason: str
    base: Score | None
    best: Score | None
    attempts: tuple[Attempt, ...]
    extra: bool = False
    """An extra sample: told along with others, no reason to call."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The stored verdict on a candidate: nothing is evaluated twice for the same purpose."""

    candidate_id: str
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    latency_us: float | None = None
    evaluations: int = 1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request without an answer yet."""

    request: Requested
    withheld: bool = False
    """Decided while the run was pausing: not sent before it goes on."""


class Incumbent(msgspec.Struct, frozen=True, kw_only=True):
    """The best measured candidate of the run."""

    candidate_id: str
    node_id: str
    round: int
    credit: float
    speedup: float | None = None
    """None where candidates are scored."""
    latency_us: float | None = None


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
    summary: str = ""
    open_questions: tuple[str, ...] = ()
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
    reports: tuple[Report, ...] = ()
    dry: bool = False
    """The last call for edits inserted nothing, and nothing was learned since."""
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
    usage_planner: Usage = Usage()
    usage_coder: Usage = Usage()
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
    def questions(self) -> list[WriteRequested | PlanRequested]:
        """Questions to models that are under way, oldest first; not those that are withheld."""
        asked = [job.request for job in self.jobs.values() if not job.withheld]
        found = [request for request in asked if isinstance(request, WriteRequested | PlanRequested)]
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


_encoder = msgspec.msgpack.Encoder()
MapName: TypeAlias = Literal["nodes", "branches", "jobs", "known"]
Entry: TypeAlias = Node | Branch | Job | Known


def put(state: SearchState, name: MapName, key: str, value: Entry) -> SearchState:
    """Return the state with one entry of one of its maps set."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    mixed = state.entries_hash ^ _entry_hash(name, key, entries.get(key)) ^ _entry_hash(name, key, value)
    return msgspec.structs.replace(state, **{name: entries.insert(key, value), "entries_hash": mixed})


def put_node(state: SearchState, node: Node) -> SearchState:
    """Return the state with a node set, its parent's count of live children and the indexes kept true."""
    before = state.nodes.get(node.node_id)
    state = _index(put(state, "nodes", node.node_id, node), node)
    if before is not None and (before.state == "closed") != (node.state == "closed"):
        for child in node.children:
            state = _index(state, state.node(child))
    born = node.live - (before is not None and before.live)
    if not born or not node.parent_id:
        return state
    parent = state.node(node.parent_id)
    return put_node(state, msgspec.structs.replace(parent, live_children=parent.live_children + born))


def _index(state: SearchState, node: Node) -> SearchState:
    in_frontier = node.state == "open" and state.node(node.parent_id).state == "closed"
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
    """Return the state without one entry of one of its maps; the same state if it is not there."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    if key not in entries:
        return state
    mixed = state.entries_hash ^ _entry_hash(name, key, entries[key])
    return msgspec.structs.replace(state, **{name: entries.remove(key), "entries_hash": mixed})


def state_hash(state: SearchState) -> str:
    """Return a hash (blake2b-128, hex) that equal states share and others, but for chance, do not.

    The maps enter by the exclusive or of their entries' hashes, kept up to date by `put` and `drop`: a hash of
    10,000 entries costs no more than one of ten.
    """
    digest = blake2b(state.entries_hash.to_bytes(16, "little"), digest_size=16)
    for name in _PLAIN_FIELDS:
        digest.update(_encoder.encode((name, getattr(state, name))))
    return digest.hexdigest()


def recomputed_entries_hash(state: SearchState) -> int:
    """Return what `entries_hash` has to be, from the maps themselves; for tests."""
    mixed = 0
    for name in _MAPS:
        for key, value in getattr(state, name).items():
            mixed ^= _entry_hash(name, key, value)
    return mixed


_MAPS: tuple[MapName, ...] = ("nodes", "branches", "jobs", "known")
_DERIVED = (*_MAPS, "entries_hash", "frontier_ids", "barren_ids")
_PLAIN_FIELDS = tuple(name for name in SearchState.__struct_fields__ if name not in _DERIVED)


def _entry_hash(name: MapName, key: str, value: Entry | None) -> int:
    if value is None:
        return 0
    return int.from_bytes(blake2b(_encoder.encode((name, key, value)), digest_size=16).digest(), "little")
