"""What a live view shows of a run beyond its chronicle: since when what is in flight, at what pace, which nodes.

Pure: records in; numbers, names and lines of note out. Knows no terminal, and no clock but the records' stamps and the
`now` that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from heapq import nlargest, nsmallest
from itertools import zip_longest

import msgspec

from actors.planner.core.state import Node, Score, SearchState, is_confirmation, number_of
from actors.planner.core.tree import ancestors, frontier
from ksearch_async.chronicle import Chronicle
from ksearch_async.narrate import Narrator, fault_line
from messages.base import ROOT
from messages.codec import Record
from messages.events import CandidateWritten, EditsProposed, JobsUnserved
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationRequested,
    EditsRefused,
    EvaluationRequested,
    Fact,
    InitialScored,
    LossNoted,
    PlanAbandoned,
    PlanRequested,
    RunContinued,
    RunPaused,
    RunStopping,
    WriteRequested,
)

_PACE_ROUNDS = 32
"""The pace is that of so many rounds, the latest ones."""
_FEWEST_ROUNDS = 2
_MANY = 10
"""Trees with so many times the nodes that can be shown are looked through less closely."""
_OF_NOTE = (
    InitialScored
    | ConfirmationFinished
    | EditsRefused
    | PlanAbandoned
    | LossNoted
    | RunPaused
    | RunContinued
    | RunStopping
)
_ASKED = WriteRequested | BuildRequested | EvaluationRequested | ConfirmationRequested | PlanRequested
_VERBS = {WriteRequested: "writing", BuildRequested: "building", EvaluationRequested: "evaluating"}


class Work(msgspec.Struct, frozen=True):
    """What is being done for a node, or for the tree as a whole."""

    verb: str
    """`writing`, `building`, `evaluating`, `confirming` (what a branch wrote, and may have left behind), `planning`, or
    `waiting` (for another branch's verdict, for the end)."""
    since_s: float | None = None
    """Seconds since it was asked for, queueing included; null while nothing is asked for."""


class Progress:
    """Follows one session of a run."""

    def __init__(self, chronicle: Chronicle, narrator: Narrator, *, leads: bool = True) -> None:
        """Follow a run.

        Args:
            chronicle: holds what was before this session.
            narrator: tells of it.
            leads: whether the run is led by this process, and ends with it.
        """
        self.chronicle = chronicle
        self.leads = leads
        self._narrator = narrator
        self._asked_at: dict[str, datetime] = {}
        self._began_at: datetime | None = None
        self._rounds_at: deque[datetime] = deque(maxlen=_PACE_ROUNDS)

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield the lines of note in it: a new best, refused edits, losses, what ends the run.

        Failed tries of a call are of note when their kind is new.
        """
        at = datetime.fromisoformat(record.at)
        self._began_at = self._began_at or at
        known = set(self.chronicle.faults)
        for fact in self.chronicle.unfold(record):
            self._take(fact, at)
            if self._is_of_note(fact):
                yield self._narrator.line(fact)
        if isinstance(record.body, CandidateWritten | EditsProposed) and self.chronicle.faults.keys() - known:
            yield self._narrator.fitted(fault_line(record.body))
        elif isinstance(record.body, JobsUnserved):
            yield from self._narrator.unserved_lines(record.body)

    def _take(self, fact: Fact, at: datetime) -> None:
        if isinstance(fact, _ASKED):
            self._asked_at[fact.job_id] = at
        elif isinstance(fact, AttemptFinished) and fact.round:
            self._rounds_at.append(at)

    def _is_of_note(self, fact: Fact) -> bool:
        if isinstance(fact, AttemptFinished):
            return bool(fact.round) and self._narrator.is_best(fact)
        return isinstance(fact, _OF_NOTE)

    def in_flight(self, now: datetime) -> dict[str, list[Work]]:
        """Return what is being done now, by node; the planner's call stands under the root."""
        state = self.chronicle.state
        found: dict[str, list[Work]] = {}
        if (plan := state.plan) is not None:
            found[ROOT] = [Work("planning", self._since(plan.job_id, now))]
        for branch in sorted(state.branches.values(), key=lambda branch: number_of(branch.branch_id)):
            jobs = [state.jobs.get(draft.job_id or "") for draft in branch.drafts]
            for job in jobs or [None]:
                if job is not None and not job.withheld and type(job.request) in _VERBS:
                    work = Work(_VERBS[type(job.request)], self._since(job.request.job_id, now))
                else:
                    work = Work("waiting")
                found.setdefault(branch.node_id, []).append(work)
        for job in state.jobs.values():
            if is_confirmation(job.request) and not job.withheld:
                node_id = state.provisional[job.request.candidate_id].node_id
                work = Work("confirming", self._since(job.request.job_id, now))
                found.setdefault(node_id, []).append(work)
        return found

    def _since(self, job_id: str, now: datetime) -> float:
        """Return the seconds since a job was asked for; one of an earlier session was asked for again at the start."""
        asked_at = self._asked_at.get(job_id) or self._began_at or now
        return max(0.0, (now - asked_at).total_seconds())

    def result(self, node: Node) -> Score | None:
        """Return the best correct candidate of a node, of the branches at work on it too."""
        branches = self.chronicle.state.branches.values()
        scores = [node.best, *(branch.best for branch in branches if branch.node_id == node.node_id)]
        found = [score for score in scores if score is not None]
        return max(found, key=lambda score: score.credit or 0.0, default=None)

    def elapsed_s(self, now: datetime) -> float:
        """Return the run's wall-clock until now, over all sessions, without pauses."""
        last_at = None if self.chronicle.resting else self.chronicle.last_at
        return self.chronicle.elapsed_s + (max(0.0, (now - last_at).total_seconds()) if last_at else 0.0)

    def left_s(self, now: datetime) -> float | None:
        """Estimate from the latest rounds' pace when the rounds, or the time, are used up; null: too early to say."""
        state = self.chronicle.state
        budget = state.settings.budget
        limit = None if budget.wall_clock_s is None else max(0.0, budget.wall_clock_s - self.elapsed_s(now))
        if len(self._rounds_at) < _FEWEST_ROUNDS or self._began_at is None:
            return limit
        full = len(self._rounds_at) == _PACE_ROUNDS
        since, rounds = (self._rounds_at[0], _PACE_ROUNDS - 1) if full else (self._began_at, len(self._rounds_at))
        pace_s = (now - since).total_seconds() / rounds
        left = pace_s * max(0, budget.max_rounds - state.rounds)
        return left if limit is None else min(left, limit)


def chosen_nodes(state: SearchState, rows: int) -> list[Node]:
    """Return the nodes that a tree of so many rows shows, parents before children: a node is shown under its parents.

    In flight and the way to the best come first, then the best of the frontier and of what is closed by turns.
    """
    chosen: set[str] = set()
    for node in _by_interest(state, rows):
        chain = [node, *ancestors(state, node)]
        missing = {link.node_id for link in chain if link.node_id != ROOT and link.node_id not in chosen}
        if len(chosen) + len(missing) <= rows:
            chosen |= missing
        if len(chosen) == rows:
            break
    return list(_in_tree_order(state, chosen))


def _by_interest(state: SearchState, rows: int) -> Iterator[Node]:
    """Yield nodes that deserve a row, whatever they deserve it for; some more than once."""
    if not state.nodes:
        return
    if state.incumbent is not None:
        yield state.node(state.incumbent.node_id)
    working = {branch.node_id for branch in state.branches.values()}
    yield from (state.node(node_id) for node_id in sorted(working, key=number_of))
    waiting = nsmallest(rows, frontier(state), key=lambda node: -node.priority)
    closed = (node for node in state.nodes.values() if node.state == "closed" and node.node_id != ROOT)
    by_turns = zip_longest(waiting, nlargest(rows, closed, key=_worth))
    yield from (node for pair in by_turns for node in pair if node is not None)
    if len(state.nodes) > _MANY * rows:
        return  # the frontier and what is closed fill the rows
    others = (node for node in state.nodes.values() if node.state in ("open", "pruned"))
    yield from nsmallest(rows, others, key=lambda node: (node.state == "pruned", number_of(node.node_id)))


def _worth(node: Node) -> tuple[float, int]:
    return (node.best.speedup or 0.0 if node.best else 0.0, number_of(node.node_id))


def _in_tree_order(state: SearchState, chosen: set[str]) -> Iterator[Node]:
    """Yield the chosen nodes; the parents of each are among them."""
    waiting = [ROOT] if chosen else []
    while waiting:
        node = state.node(waiting.pop())
        if node.node_id != ROOT:
            yield node
        waiting.extend(child for child in reversed(node.children) if child in chosen)
