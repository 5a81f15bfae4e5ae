"""Updates for the page: one for each record of a run, with the values that it changed.

A reader that keeps the latest `NodeView` and `JobView` by id, and all `Mark`s, knows the run's current state. Field
names are the JSON's; fields with their default value are left out of it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from actors.planner.core.state import Node, NodeState, Score, SearchState, is_confirmation, with_all_below
from ksearch_async.runs.run import Head, Mark, Run, Totals, repeats_known, taken
from ksearch_async.views.lines import Narrator, fault_line
from messages.base import ROOT
from messages.codec import Record
from messages.events import (
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    EditsProposed,
    JobLost,
    JobsUnserved,
)
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationRequested,
    Decided,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    Fact,
    IncumbentChanged,
    InitialRequested,
    InitialScored,
    LossNoted,
    NodePruned,
    Origin,
    PlanAbandoned,
    PlanRequested,
    RunFinished,
    SearchOpened,
    SearchReopened,
    WriteRequested,
)
from messages.steering import NodeForbidden, NodeReleased
from messages.verdicts import DidNotBuild, Fate

JobVerb: TypeAlias = Literal["planning", "writing", "building", "evaluating", "confirming"]
NoteKind: TypeAlias = Literal["best", "world_model", "attempt", "loss", "steering", "course"]
"""Subject of a line: a new best or its confirmation, the tree, an attempt, a loss by the infrastructure, a person's
order, or the run's own state."""


class Worth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Worth of a correct candidate."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's 95 % interval, or a score; null: not timed."""
    speedup: float | None = None
    """Median against the reference; null for scores and where nothing was timed."""
    speedup_high: float | None = None
    latency_us: float | None = None
    is_least: bool = False
    """True if `speedup` is a lower bound, since the time could not be determined."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action of the tree after a record."""

    node_id: str
    parent_id: str
    """Empty for the root."""
    title: str
    state: NodeState
    priority: float = 0.0
    """V, as last given by the planner's model."""
    difficulty: int = 1
    depth: int = 0
    origin: Origin = "model"
    second_id: str = ""
    expected_gain: float | None = None
    best: Worth | None = None
    """Best of its branches that ended; see `JobView` for work in flight."""
    rounds: int = 0
    tries: int = 0
    fates: tuple[tuple[Fate, int], ...] = ()
    in_flight: int = 0
    """Number of branches at work on it."""
    prune_reason: str = ""
    spent: bool = False
    pinned: bool = False
    boost: float = 0.0
    forbidden: bool = False
    """True if it, or an action above it, is forbidden."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of work, from the record that requested it to the one that answered."""

    job_id: str
    verb: JobVerb
    node_id: str
    """`n0` for the planner's calls."""
    began_s: float
    """Seconds of the run at which it was requested, so queueing is included."""
    ended_s: float | None = None
    """Null: in flight."""
    busy_s: float | None = None
    """Seconds of work as reported by its worker; null: not reported."""
    branch_id: str = ""
    candidate_id: str = ""
    worker: str = ""
    """Process that did it; empty in a run of one process."""
    unit: str = ""
    """Device of an evaluation, as its evaluator names it; name of the model of a question."""
    result: str = ""
    """Verdict's tag, `built`, `written`, `unusable`, `edits`, `refused`, `lost`, `dropped`; empty: in flight."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt, or one draft of it, with its outcome."""

    node_id: str
    branch_id: str
    fate: Fate
    outcome: str
    round: int = 0
    """0: nothing was evaluated for it."""
    candidate_id: str = ""
    worth: Worth | None = None
    repeats_known: bool = False
    """True if another attempt had written the same."""


class ConfirmationView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A candidate that was measured a second time, which counts from then on instead of its attempt."""

    candidate_id: str
    fate: Fate
    outcome: str
    worth: Worth | None = None
    """Null: it was refuted."""
    screen_speedup: float
    """Speedup in its first measurement."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for people."""

    kind: NoteKind
    text: str
    node_id: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values that one record changed."""

    seq: int
    """Number of the record: a reader that knows the run up to here continues after it."""
    at: str
    """ISO 8601, UTC."""
    totals: Totals
    head: Head | None = None
    nodes: tuple[NodeView, ...] = ()
    """Nodes that changed, in their new state."""
    jobs: tuple[JobView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    confirmations: tuple[ConfirmationView, ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[Note, ...] = ()


_Asked = (
    WriteRequested | BuildRequested | EvaluationRequested | InitialRequested | ConfirmationRequested | PlanRequested
)
_Answer = CandidateWritten | CandidateBuilt | CandidateEvaluated | EditsProposed | JobLost
_VERBS: dict[type, JobVerb] = {
    PlanRequested: "planning",
    WriteRequested: "writing",
    BuildRequested: "building",
    EvaluationRequested: "evaluating",
    InitialRequested: "evaluating",
    ConfirmationRequested: "confirming",
}
_WHOLE_TREE = SearchOpened | SearchReopened | RunFinished
"""Facts after which every node is compared."""
_SUBTREE = NodePruned | NodeForbidden | NodeReleased
_KINDS: tuple[tuple[type | tuple[type, ...], NoteKind], ...] = (
    ((IncumbentChanged, ConfirmationFinished), "best"),
    ((AttemptFinished, InitialScored), "attempt"),
    ((EditsApplied, EditsRefused, PlanAbandoned), "world_model"),
    (LossNoted, "loss"),
)


class Folding:
    """Folds a run's records, one after the other, and returns the changes of each."""

    def __init__(self) -> None:
        self.run = Run(with_texts=True)
        self._narrator = Narrator(self.run, open_count=self._open_count)
        self._nodes: dict[str, Node] = {}
        """Nodes as last sent."""
        self._open = 0
        """Number of open nodes among them."""
        self._facts: list[Fact] = []
        """Facts so far of the record that is folded."""
        self._jobs: dict[str, JobView] = {}
        """Jobs in flight."""
        self._head: Head | None = None
        self._basis: tuple[object, ...] | None = None
        """Values from which the head was made."""

    def take(self, record: Record) -> Update:
        """Fold a record."""
        run, facts, notes = self.run, list[Fact](), list[Note]()
        self._facts, known = facts, len(run.steps)
        for fact in run.unfold(record):
            facts.append(fact)
            notes.extend(self._notes(fact))
        notes.extend(_event_notes(record))
        return Update(
            seq=record.seq,
            at=record.at,
            totals=run.totals,
            head=self._new_head(),
            nodes=tuple(self._changed_nodes(facts)),
            jobs=tuple(self._changed_jobs(record, facts)),
            attempts=tuple(self._attempt(fact) for fact in facts if isinstance(fact, AttemptFinished)),
            confirmations=tuple(
                taken(ConfirmationView, fact, worth=_worth(fact))
                for fact in facts
                if isinstance(fact, ConfirmationFinished)
            ),
            marks=tuple(step.mark for step in run.steps[known:]),
            notes=tuple(notes),
        )

    def _notes(self, fact: Fact) -> Iterator[Note]:
        line = self._narrator.line(fact).strip()
        if not line:
            return
        kind = next((kind for types, kind in _KINDS if isinstance(fact, types)), _other_kind(fact))
        yield Note(kind=kind, text=line, node_id=self._node_named(fact))

    def _attempt(self, fact: AttemptFinished) -> AttemptView:
        return taken(
            AttemptView,
            fact,
            node_id=self.run.node_of(fact.branch_id),
            candidate_id=fact.candidate_id or "",
            worth=_worth(fact),
            repeats_known=repeats_known(fact),
        )

    def _new_head(self) -> Head | None:
        state = self.run.state
        basis = (self.run.started, state.settings, state.lineup, state.summary, bool(state.run_id))
        if self._basis is not None and all(map(operator.is_, basis, self._basis)):
            return None  # it would be the same: values are replaced, never changed
        known, self._basis, self._head = self._head, basis, self.run.head
        return None if self._head == known else self._head

    def _changed_nodes(self, facts: Iterable[Fact]) -> Iterator[NodeView]:
        nodes = self.run.state.nodes
        for node_id in dict.fromkeys(self._touched(facts)):
            node, known = nodes.get(node_id), self._nodes.get(node_id)
            if node is not None and known is not node:
                self._nodes[node_id] = node
                self._open += _is_open(node) - _is_open(known)
                view = node_view(node)
                if known is None or node_view(known) != view:
                    yield view

    def _open_count(self) -> int:
        """Return the number of open nodes after the facts so far, without counting all of them."""
        nodes = self.run.state.nodes
        touched = dict.fromkeys(self._touched(self._facts))
        return self._open + sum(_is_open(nodes.get(each)) - _is_open(self._nodes.get(each)) for each in touched)

    def _touched(self, facts: Iterable[Fact]) -> Iterator[str]:
        state = self.run.state
        for fact in facts:
            if isinstance(fact, _WHOLE_TREE):
                yield from (f"n{index}" for index in range(len(state.nodes)))
            elif isinstance(fact, EditsApplied):
                for change in fact.changes:
                    is_pruned = isinstance(change, NodePruned)
                    yield from _subtree(state, change.node_id) if is_pruned else (change.node_id,)
            elif isinstance(fact, InitialScored):
                yield ROOT
            elif isinstance(fact, _SUBTREE):
                yield from _subtree(state, fact.node_id)
            elif node_id := self._node_named(fact):
                yield node_id

    def _changed_jobs(self, record: Record, facts: Iterable[Fact]) -> Iterator[JobView]:
        now_s = round(self.run.elapsed_s, 3)
        if isinstance(record.body, _Answer) and (asked := self._jobs.pop(record.body.job_id, None)):
            yield _answered(asked, record.body, now_s)
        changed = {fact.job_id: self._asked(fact, now_s) for fact in facts if isinstance(fact, _Asked)}
        self._jobs |= changed
        if isinstance(record.body, Decided):
            for job_id in [job_id for job_id in self._jobs if job_id not in self.run.state.jobs]:
                changed[job_id] = msgspec.structs.replace(self._jobs.pop(job_id), ended_s=now_s, result="dropped")
        yield from changed.values()

    def _asked(self, fact: _Asked, now_s: float) -> JobView:
        candidate_id = getattr(fact, "candidate_id", "")
        node_id = self.run.node_of(getattr(fact, "branch_id", ""))
        if is_confirmation(fact):
            waiting = self.run.state.provisional.get(candidate_id)
            node_id = waiting.node_id if waiting else ROOT
        return taken(JobView, fact, verb=_VERBS[type(fact)], node_id=node_id, began_s=now_s, candidate_id=candidate_id)

    def _node_named(self, fact: Fact) -> str:
        branch_id = getattr(fact, "branch_id", "")
        return getattr(fact, "node_id", "") or (self.run.node_of(branch_id) if branch_id in self.run.branches else "")


def updates_of(records: Iterable[Record]) -> Iterator[Update]:
    """Yield the changes of each of a run's records, from the first on."""
    return map(Folding().take, records)


def node_view(node: Node) -> NodeView:
    """Return a node for the page."""
    best = taken(Worth, node.best) if node.best else None
    return taken(NodeView, node, best=best, pinned=bool(node.pinned), forbidden=node.barred)


def _worth(fact: AttemptFinished | ConfirmationFinished) -> Worth | None:
    if fact.candidate_id is None or fact.credit is None:
        return None
    return taken(Worth, taken(Score, fact))


def _event_notes(record: Record) -> Iterator[Note]:
    body = record.body
    if isinstance(body, CandidateWritten | EditsProposed) and body.faults:
        yield Note(kind="loss", text=fault_line(body).strip())
    elif isinstance(body, JobsUnserved):
        yield Note(kind="loss", text=f"waiting for a {body.role}: {body.detail}")


def _subtree(state: SearchState, node_id: str) -> Iterator[str]:
    if node_id in state.nodes:
        yield from (node.node_id for node in with_all_below(state, state.node(node_id)))


def _answered(asked: JobView, answer: _Answer, now_s: float) -> JobView:
    busy_s: float | None = None
    unit, result = "", ""
    match answer:
        case CandidateWritten():
            result = "written" if answer.candidate else ("declined" if answer.declined else "unusable")
            busy_s, unit = answer.latency_s, answer.model
        case EditsProposed():
            result = "edits" if answer.script is not None else "unusable"
            busy_s, unit = answer.latency_s, answer.model
        case CandidateBuilt():
            result = "did_not_build" if isinstance(answer.outcome, DidNotBuild) else "built"
            busy_s = answer.wall_s
        case CandidateEvaluated():
            result = str(answer.verdict.__struct_config__.tag)
            busy_s, unit = answer.wall_s, answer.unit or answer.device
        case JobLost():
            result = "lost"
    worker = getattr(answer, "worker", "")
    return msgspec.structs.replace(asked, ended_s=now_s, busy_s=busy_s, unit=unit, result=result, worker=worker)


def _is_open(node: Node | None) -> bool:
    return node is not None and node.state == "open"


def _other_kind(fact: Fact) -> NoteKind:
    tag = str(fact.__struct_config__.tag)
    return "course" if tag.startswith(("run.", "search.")) else "steering"
