"""Folds a run's records into updates for views. Pure: no files, no servers, no clock."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

import msgspec

from actors.planner.core.state import Node, Score, SearchState, is_confirmation
from ksearch_async.runs.feed import (
    AttemptView,
    ConfirmationView,
    Head,
    JobVerb,
    JobView,
    Mark,
    NodeView,
    Note,
    NoteKind,
    Totals,
    Update,
    Worth,
    head_of,
)
from ksearch_async.runs.state import Best, Chronicle, repeats_known, standing_of
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
    BranchStarted,
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
    PlanAbandoned,
    PlanRequested,
    RunFinished,
    SearchOpened,
    SearchReopened,
    WriteRequested,
)
from messages.steering import NodeForbidden, NodeReleased
from messages.verdicts import DidNotBuild

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
"""Facts after which every node is looked at."""
_SUBTREE = NodePruned | NodeForbidden | NodeReleased
_KINDS: tuple[tuple[type | tuple[type, ...], NoteKind], ...] = (
    ((IncumbentChanged, ConfirmationFinished), "best"),
    ((AttemptFinished, InitialScored), "attempt"),
    ((EditsApplied, EditsRefused, PlanAbandoned), "world_model"),
    (LossNoted, "loss"),
)


class Folding:
    """Takes a run's records, one after the other, and says of each what it changed."""

    def __init__(self) -> None:
        self.chronicle = Chronicle()
        self._narrator = Narrator(self.chronicle, open_count=self._open_count)
        self._nodes: dict[str, Node] = {}
        """As they were told last."""
        self._open = 0
        """How many of these are open."""
        self._facts: list[Fact] = []
        """Of the record that is folded, so far."""
        self._open_jobs: dict[str, JobView] = {}
        self._node_of: dict[str, str] = {}
        """By branch."""
        self._head: Head | None = None
        self._basis: tuple[object, ...] | None = None
        """What the head was made of."""

    def take(self, record: Record) -> Update:
        """Fold a record."""
        facts = self._facts = []
        attempts: list[AttemptView] = []
        confirmations: list[ConfirmationView] = []
        marks: list[Mark] = []
        notes: list[Note] = []
        for fact in self.chronicle.unfold(record):
            facts.append(fact)
            notes.extend(self._notes(fact))
            if isinstance(fact, BranchStarted):
                self._node_of[fact.branch_id] = fact.node_id
            elif isinstance(fact, AttemptFinished):
                attempts.append(self._attempt(fact))
            elif isinstance(fact, ConfirmationFinished):
                confirmations.append(_confirmation(fact))
            elif isinstance(fact, IncumbentChanged):
                marks.append(self._mark(fact))
        notes.extend(self._event_notes(record))
        return Update(
            seq=record.seq,
            at=record.at,
            totals=self._totals(),
            head=self._new_head(),
            nodes=tuple(self._changed_nodes(facts)),
            jobs=tuple(self._changed_jobs(record, facts)),
            attempts=tuple(attempts),
            confirmations=tuple(confirmations),
            marks=tuple(marks),
            notes=tuple(notes),
        )

    def _notes(self, fact: Fact) -> Iterator[Note]:
        line = self._narrator.line(fact).strip()
        if not line:
            return
        kind = next((kind for types, kind in _KINDS if isinstance(fact, types)), _other_kind(fact))
        yield Note(kind=kind, text=line, node_id=_node_named(fact, self._node_of))

    def _event_notes(self, record: Record) -> Iterator[Note]:
        body = record.body
        if isinstance(body, CandidateWritten | EditsProposed) and body.faults:
            yield Note(kind="loss", text=fault_line(body).strip())
        elif isinstance(body, JobsUnserved):
            yield Note(kind="loss", text=f"waiting for a {body.role}: {body.detail}")

    def _attempt(self, fact: AttemptFinished) -> AttemptView:
        return AttemptView(
            node_id=self._node_of.get(fact.branch_id, ROOT),
            branch_id=fact.branch_id,
            fate=fact.fate,
            outcome=fact.outcome,
            round=fact.round,
            candidate_id=fact.candidate_id or "",
            worth=_worth_told(fact),
            repeats_known=repeats_known(fact),
        )

    def _mark(self, fact: IncumbentChanged) -> Mark:
        chronicle, state = self.chronicle, self.chronicle.state
        best, verdict = chronicle.best(""), chronicle.measured(fact.candidate_id)
        timed = best if isinstance(best, Best) else None
        return Mark(
            candidate_id=fact.candidate_id,
            node_id=fact.node_id,
            round=fact.round,
            elapsed_s=round(chronicle.elapsed_s, 3),
            cost_usd=state.cost_usd,
            calls=state.usage.calls,
            credit=fact.credit,
            speedup=fact.speedup,
            speedup_high=timed.speedup_interval[1] if timed else None,
            latency_us=fact.latency_us,
            reference_latency_us=timed.reference_latency_us if timed else None,
            baseline=verdict.baseline if verdict else "",
            baseline_latency_us=verdict.baseline_latency_us if verdict else None,
            speedup_vs_baseline=verdict.speedup_vs_baseline if verdict else None,
            screen_speedup=fact.screen_speedup,
            workloads=timed.workloads if timed else (),
        )

    def _totals(self) -> Totals:
        chronicle, state = self.chronicle, self.chronicle.state
        usage = state.usage
        return Totals(
            standing=standing_of(chronicle),
            stopped_by=state.stopped_by or "",
            detail=state.stop_detail,
            rounds=state.rounds,
            elapsed_s=round(chronicle.elapsed_s, 3),
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            cost_usd=state.cost_usd,
            unpriced_calls=chronicle.unpriced_calls,
            fates=dict(chronicle.fates),
            faults=dict(chronicle.faults),
            best_id=state.incumbent.candidate_id if state.incumbent else "",
        )

    def _new_head(self) -> Head | None:
        """Return what the run is, where that is not what was told last."""
        started, state = self.chronicle.started, self.chronicle.state
        if started is None:
            return None
        basis = (started, state.settings, state.lineup, state.summary, bool(state.run_id))
        if self._basis is not None and all(map(operator.is_, basis, self._basis)):
            return None  # it would be the same: values are replaced, never changed
        self._basis = basis
        known, first_at = self._head, self._head.started_at if self._head else None
        self._head = head_of(self.chronicle, started, first_at=first_at)
        return None if self._head == known else self._head

    def _changed_nodes(self, facts: Iterable[Fact]) -> Iterator[NodeView]:
        nodes = self.chronicle.state.nodes
        for node_id in dict.fromkeys(self._touched(facts)):
            node = nodes.get(node_id)
            if node is not None and self._nodes.get(node_id) is not node:
                known = self._nodes.get(node_id)
                self._nodes[node_id] = node
                self._open += _is_open(node) - _is_open(known)
                if known is None or node_view(known) != node_view(node):
                    yield node_view(node)

    def _open_count(self) -> int:
        """Return how many nodes are open after the facts so far: counting thousands would take longer than folding."""
        nodes = self.chronicle.state.nodes
        touched = dict.fromkeys(self._touched(self._facts))
        return self._open + sum(_is_open(nodes.get(each)) - _is_open(self._nodes.get(each)) for each in touched)

    def _touched(self, facts: Iterable[Fact]) -> Iterator[str]:
        state = self.chronicle.state
        for fact in facts:
            if isinstance(fact, _WHOLE_TREE):
                yield from (f"n{index}" for index in range(len(state.nodes)))
            elif isinstance(fact, EditsApplied):
                for change in fact.changes:
                    yield from subtree(state, change.node_id) if isinstance(change, NodePruned) else (change.node_id,)
            elif isinstance(fact, InitialScored):
                yield ROOT
            elif isinstance(fact, _SUBTREE):
                yield from subtree(state, fact.node_id)
            elif node_id := _node_named(fact, self._node_of):
                yield node_id

    def _changed_jobs(self, record: Record, facts: Iterable[Fact]) -> Iterator[JobView]:
        now_s = round(self.chronicle.elapsed_s, 3)
        if isinstance(record.body, _Answer) and (asked := self._open_jobs.pop(record.body.job_id, None)):
            yield _answered(asked, record.body, now_s)
        changed: dict[str, JobView] = {}
        for fact in facts:
            if isinstance(fact, _Asked):
                self._open_jobs[fact.job_id] = changed[fact.job_id] = self._asked(fact, now_s)
        if isinstance(record.body, Decided):
            for job_id in [job_id for job_id in self._open_jobs if job_id not in self.chronicle.state.jobs]:
                asked = self._open_jobs.pop(job_id)
                changed[job_id] = msgspec.structs.replace(asked, ended_s=now_s, result="dropped")
        yield from changed.values()

    def _asked(self, fact: _Asked, now_s: float) -> JobView:
        branch_id = getattr(fact, "branch_id", "")
        candidate_id = getattr(fact, "candidate_id", "")
        node_id = self._node_of.get(branch_id, ROOT)
        if is_confirmation(fact):
            waiting = self.chronicle.state.provisional.get(candidate_id)
            node_id = waiting.node_id if waiting else ROOT
        return JobView(
            job_id=fact.job_id,
            verb=_VERBS[type(fact)],
            node_id=node_id,
            began_s=now_s,
            branch_id=branch_id,
            candidate_id=candidate_id,
        )


def updates_of(records: Iterable[Record]) -> Iterator[Update]:
    """Yield what each of a run's records changed; all of them, from the first."""
    folding = Folding()
    return map(folding.take, records)


def worth_of(score: Score) -> Worth:
    """Return what a correct candidate is worth, as it is told."""
    return Worth(
        candidate_id=score.candidate_id,
        credit=score.credit,
        speedup=score.speedup,
        speedup_high=score.speedup_high,
        latency_us=score.latency_us,
        is_least=score.is_least,
    )


def _confirmation(fact: ConfirmationFinished) -> ConfirmationView:
    return ConfirmationView(
        candidate_id=fact.candidate_id,
        fate=fact.fate,
        outcome=fact.outcome,
        worth=_worth_told(fact),
        screen_speedup=fact.screen_speedup,
    )


def _worth_told(fact: AttemptFinished | ConfirmationFinished) -> Worth | None:
    if fact.candidate_id is None or fact.credit is None:
        return None
    score = Score(
        candidate_id=fact.candidate_id,
        credit=fact.credit,
        speedup=fact.speedup,
        speedup_high=fact.speedup_high,
        latency_us=fact.latency_us,
    )
    return worth_of(score)


def node_view(node: Node) -> NodeView:
    """Return a node as it is told."""
    return NodeView(
        node_id=node.node_id,
        parent_id=node.parent_id,
        title=node.title,
        state=node.state,
        priority=node.priority,
        difficulty=node.difficulty,
        depth=node.depth,
        origin=node.origin,
        second_id=node.second_id,
        expected_gain=node.expected_gain,
        best=worth_of(node.best) if node.best else None,
        rounds=node.rounds,
        tries=node.tries,
        fates=node.fates,
        in_flight=node.in_flight,
        prune_reason=node.prune_reason,
        spent=node.spent,
        pinned=bool(node.pinned),
        boost=node.boost,
        forbidden=node.barred,
    )


def subtree(state: SearchState, node_id: str) -> Iterator[str]:
    """Yield a node and all below it; nothing if there is no such node."""
    waiting = [node_id] if node_id in state.nodes else []
    while waiting:
        node = state.node(waiting.pop())
        yield node.node_id
        waiting.extend(node.children)


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


def _node_named(fact: Fact, node_of: dict[str, str]) -> str:
    """Return the node that a fact is about; empty if it is about none."""
    node_id = getattr(fact, "node_id", "")
    return node_id or node_of.get(getattr(fact, "branch_id", ""), "")


def _other_kind(fact: Fact) -> NoteKind:
    tag = str(fact.__struct_config__.tag)
    return "course" if tag.startswith(("run.", "search.")) else "steering"
