"""The state of a search: an immutable fold of its facts, with its tree, its branches and its maps.

Values only; `drafting` folds facts into them.

Holds ids, numbers and one-line outcomes. Programs, prompts and build logs stay in the events that brought them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal, TypeAlias, TypeGuard

import msgspec
from msgspec.structs import replace
from rpds import HashTrieMap, HashTrieSet

from actors.planner.core.arms import Arm
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
from messages.verdicts import CORRECT_FATES, Fate


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A correct candidate and what it is worth."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's interval, or a score; None where it was not timed."""
    speedup: float | None = None
    speedup_high: float | None = None
    """Upper bound of the speedup's interval; None where it is not known."""
    latency_us: float | None = None

    @property
    def is_least(self) -> bool:
        """Say whether `speedup` is only what it has at least, since its time was not steady enough to be told."""
        return self.speedup is not None and self.speedup == self.credit and (self.speedup_high or 0.0) > self.speedup


def better(first: Score | None, second: Score | None) -> Score | None:
    """Return the one with the larger credit; the first on a tie, and the timed one where only one was timed."""
    if first is None or second is None:
        return first or second
    return second if (second.credit or 0.0) > (first.credit or 0.0) else first


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a coder and its outcome; of several drafts the best one's."""

    number: int
    candidate_id: str | None
    fate: Fate
    outcome: str
    credit: float | None = None
    speedup: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    round: int = 0
    """0 if nothing was evaluated for it."""
    evidence: tuple[str, ...] = ()
    """What is known besides the outcome; bounded."""
    others: tuple[str, ...] = ()
    """Outcomes of the attempt's other drafts."""

    @property
    def score(self) -> Score | None:
        """What it is worth; None unless it is correct."""
        if self.fate not in CORRECT_FATES or self.candidate_id is None:
            return None
        return Score(
            candidate_id=self.candidate_id,
            credit=self.credit,
            speedup=self.speedup,
            speedup_high=self.speedup_high,
            latency_us=self.latency_us,
        )


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a coder that is under way: being written, built, evaluated, or waiting for another's verdict."""

    number: int
    """From 0, within its attempt."""
    job_id: str | None = None
    """The job it waits for."""
    candidate_id: str | None = None
    """The candidate that is being built or evaluated for it, or whose verdict it awaits."""
    awaiting: bool = False
    """Another draft is having the same candidate evaluated."""
    model: str = ""
    """Which of several coder models was asked."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The local refinement of one node."""

    branch_id: str
    node_id: str
    base: Score | None
    """The parent's candidate; None: the reference."""
    second: Score | None = None
    """Candidate of a second parent, whose technique is to be merged into the base."""
    expected_gain: float | None = None
    """What was expected of its action when it began."""
    attempts: tuple[Attempt, ...] = ()
    best: Score | None = None
    stale: int = 0
    """Attempts in a row without improvement; without a correct candidate all of them."""
    attempt_limit: int | None = None
    drafts: tuple[Draft, ...] = ()
    """Those of the present attempt that are under way; none: the next one may begin."""
    ended: tuple[Attempt, ...] = ()
    """Outcomes of its other drafts."""
    improved: bool = False
    """One of these was better than all before."""
    sample: int = 0
    """How many branches and extra samples there were on this node before it."""

    @property
    def extra(self) -> bool:
        """It is an extra sample: one attempt for a node that another branch refines."""
        return self.attempt_limit is not None

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it waits for."""
        return tuple(draft.job_id for draft in self.drafts if draft.job_id is not None)

    def draft(self, number: int) -> Draft:
        """Return a draft that is under way; one that waits for nothing if it is not."""
        return next((draft for draft in self.drafts if draft.number == number), Draft(number=number))

    def with_draft(self, draft: Draft) -> Branch:
        """Return the branch with this draft under way, as it now is."""
        kept = [other for other in self.drafts if other.number != draft.number]
        return replace(self, drafts=tuple(sorted([*kept, draft], key=lambda other: other.number)))

    def without_draft(self, number: int) -> Branch:
        """Return the branch with one draft less under way; with the last one the attempt is over."""
        left = tuple(draft for draft in self.drafts if draft.number != number)
        branch = replace(self, drafts=left)
        return branch if left else branch.concluded()

    def concluded(self) -> Branch:
        """Return the branch with what ended of the present attempt as its outcome."""
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
"""Of drafts that all failed the one nearest to a correct candidate goes on."""


def _promise(attempt: Attempt) -> tuple[int, float]:
    """Rank drafts of one attempt: correct ones by credit, others by how far they came, equals in order of ending."""
    if attempt.fate in CORRECT_FATES:
        return -1, -(attempt.credit or 0.0)
    return _NEARNESS.index(attempt.fate) if attempt.fate in _NEARNESS else len(_NEARNESS), 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished branch that the planner's model has not been told of."""

    branch_id: str
    node_id: str
    reason: str
    base: Score | None
    best: Score | None
    attempts: tuple[Attempt, ...]
    second: Score | None = None
    expected_gain: float | None = None
    extra: bool = False
    """An extra sample: told along with others, no reason to call."""
    refuted: bool = False
    """No branch: a candidate that was attached, and that its confirmation refuted."""
    told: bool = False
    """A call under way tells of it."""


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


def frontier(state: SearchState) -> list[Node]:
    """Return the open nodes whose parent is the root or closed, in order of insertion.

    A parent that the machine has given up stands in nobody's way: its children then build on what is above it. So an
    action that only names a family of others does not bury them.
    """
    return [state.nodes[node_id] for node_id in sorted(state.frontier_ids, key=number_of)]


def ancestors(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the parent, its parent, … up to the root."""
    while node.parent_id:
        node = state.node(node.parent_id)
        yield node


def childless(state: SearchState) -> list[Node]:
    """Return the barren nodes, best first: closed, may get children, and have none open or in flight."""
    nodes = [state.nodes[node_id] for node_id in state.barren_ids]
    return sorted(nodes, key=lambda node: (-worth(node), number_of(node.node_id)))


def worth(node: Node) -> float:
    """Return a closed node's credit; a root without a score counts as 1, an untimed candidate as 0."""
    if node.best is None:
        return 1.0 if node.node_id == ROOT else 0.0
    return node.best.credit or 0.0


def with_all_below(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the node and all its descendants, parents before children."""
    waiting = [node.node_id]
    while waiting:
        found = state.node(waiting.pop())
        yield found
        waiting.extend(found.children)


def live_parent(state: SearchState, node: Node) -> Node:
    """Return the node itself, or the nearest ancestor that the machine has not given up."""
    while node.given_up:
        node = state.node(node.parent_id)
    return node


def path_titles(state: SearchState, node_id: str) -> tuple[str, ...]:
    """Return the titles of the actions from the root's child down to the node."""
    node = state.node(node_id)
    above = [ancestor.title for ancestor in ancestors(state, node) if ancestor.node_id != ROOT]
    return (*reversed(above), node.title)


def settled(node: Node, max_tries: int) -> Node:
    """Return a node whose last branch has ended, in the state that follows."""
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
    """Return the state with one entry of one of its maps set."""
    entries: HashTrieMap[str, Entry] = getattr(state, name)
    mixed = state.entries_hash ^ _entry_hash(name, key, entries.get(key)) ^ _entry_hash(name, key, value)
    return msgspec.structs.replace(state, **{name: entries.insert(key, value), "entries_hash": mixed})


def put_node(state: SearchState, node: Node) -> SearchState:
    """Return the state with a node set, its parent's count of live children and the indexes kept true."""
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
    """Return what of a node decides whether those below it may be tried."""
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


_MAPS: tuple[MapName, ...] = ("nodes", "branches", "jobs", "known", "provisional")
_DERIVED = (*_MAPS, "entries_hash", "frontier_ids", "barren_ids", "changed_ids", "snapshot", "told")
"""What follows from the maps and from the facts that made them, and would cost too much to hash again and again."""
_PLAIN_FIELDS = tuple(name for name in SearchState.__struct_fields__ if name not in _DERIVED)


def _entry_hash(name: MapName, key: str, value: Entry | None) -> int:
    if value is None:
        return 0
    return int.from_bytes(blake2b(_encoder.encode((name, key, value)), digest_size=16).digest(), "little")
