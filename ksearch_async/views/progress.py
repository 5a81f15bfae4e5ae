"""What a live view shows of a run beyond its chronicle: since when what is in flight, at what pace, which nodes.

Pure: records in; numbers, names and lines of note out. Knows no terminal, and no clock but the records' stamps and the
`now` that it is given.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from heapq import nlargest, nsmallest
from itertools import zip_longest

import msgspec

from actors.planner.core.state import (
    Node,
    NodeState,
    SearchState,
    ancestors,
    frontier,
    is_confirmation,
    is_question,
    number_of,
)
from ksearch_async.runs.state import Chronicle, DeviceUse, Utilisation
from ksearch_async.views.lines import Narrator, fault_line
from ksearch_async.views.text import counted
from messages.base import ROOT, Usage
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, EditsProposed, JobsUnserved
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationFinished,
    ConfirmationRequested,
    EditsRefused,
    EvaluationRequested,
    Fact,
    InitialRequested,
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
_LATEST = 24
"""Attempts that are remembered for whoever shows the latest."""
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
_EVALUATION = EvaluationRequested | ConfirmationRequested | InitialRequested
_ASKED = WriteRequested | BuildRequested | PlanRequested | _EVALUATION
_VERBS = {WriteRequested: "writing", BuildRequested: "building", EvaluationRequested: "evaluating"}


class Work(msgspec.Struct, frozen=True):
    """What is being done for a node, or for the tree as a whole."""

    verb: str
    """`writing`, `building`, `evaluating`, `confirming` (what a branch wrote, and may have left behind), `planning`, or
    `waiting` (for another branch's verdict, for the end)."""
    since_s: float | None = None
    """Seconds since it was asked for, queueing included; null while nothing is asked for."""


class Tried(msgspec.Struct, frozen=True):
    """An attempt that has its outcome."""

    node_id: str
    attempt: AttemptFinished


class Spent(msgspec.Struct, frozen=True):
    """What models have cost so far."""

    usage: Usage = Usage()
    cost_usd: float = 0.0


class Progress:
    """Follows one session of a run."""

    def __init__(
        self, chronicle: Chronicle, narrator: Narrator, *, leads: bool = True, slots: int | None = None
    ) -> None:
        """Follow a run.

        Args:
            chronicle: holds what was before this session.
            narrator: tells of it.
            leads: whether the run is led by this process, and ends with it.
            slots: evaluations that are worked on at once, where that is known.
        """
        self.chronicle = chronicle
        self.leads = leads
        self.latest: deque[Tried] = deque(maxlen=_LATEST)
        """Attempts of this session that brought something new, the latest last."""
        self._narrator = narrator
        self._utilisation = Utilisation(slots=slots)
        self._asked_at: dict[str, datetime] = {}
        self._began_at: datetime | None = None
        self._spent_before = Spent()
        self._rounds_at: deque[datetime] = deque(maxlen=_PACE_ROUNDS)
        self._counts: Counter[NodeState] = Counter()
        self._counted: object = None
        """The nodes that they were counted of."""

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield the lines of note in it: a new best, refused edits, losses, what ends the run.

        Failed tries of a call are of note when their kind is new.
        """
        at = datetime.fromisoformat(record.at)
        if self._began_at is None:
            self._began_at, self._spent_before = at, self._spent()
        known = set(self.chronicle.faults)
        for fact in self.chronicle.unfold(record):
            self._take(fact, at)
            if self._is_of_note(fact):
                yield self._narrator.line(fact)
        if isinstance(record.body, CandidateWritten | EditsProposed) and self.chronicle.faults.keys() - known:
            yield self._narrator.fitted(fault_line(record.body))
        elif isinstance(record.body, CandidateEvaluated):
            self._utilisation.take(record.body, at)
        elif isinstance(record.body, JobsUnserved):
            yield from self._narrator.unserved_lines(record.body)

    def _take(self, fact: Fact, at: datetime) -> None:
        if isinstance(fact, _ASKED):
            self._asked_at[fact.job_id] = at
        elif isinstance(fact, AttemptFinished):
            if fact.round or fact.fate in ("unusable", "lost"):
                self.latest.append(Tried(self.chronicle.state.branches[fact.branch_id].node_id, fact))
            if fact.round:
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

    @property
    def questions(self) -> int:
        """Models' answers that are waited for."""
        return sum(is_question(job.request) and not job.withheld for job in self.chronicle.state.jobs.values())

    @property
    def evaluations(self) -> int:
        """Evaluations that were asked for and have no verdict yet, begun or not."""
        jobs = self.chronicle.state.jobs.values()
        return sum(isinstance(job.request, _EVALUATION) and not job.withheld for job in jobs)

    @property
    def queue(self) -> int | None:
        """Evaluations that were asked for and cannot have begun; null: who could begin them is not known yet."""
        slots = self._utilisation.slots()
        return None if slots is None else max(0, self.evaluations - slots)

    def devices(self, now: datetime) -> list[DeviceUse]:
        """Return the devices that gave verdicts in this session, and how busy each was lately."""
        since, is_timed = self._began_at or now, not self.chronicle.state.scored
        return self._utilisation.devices(now, since=since, is_waiting=self.evaluations > 0, is_timed=is_timed)

    def _since(self, job_id: str, now: datetime) -> float:
        """Return the seconds since a job was asked for; one of an earlier session was asked for again at the start."""
        asked_at = self._asked_at.get(job_id) or self._began_at or now
        return max(0.0, (now - asked_at).total_seconds())

    def node_counts(self) -> Counter[NodeState]:
        """Count the nodes by state, the root left out."""
        nodes = self.chronicle.state.nodes
        if self._counted is not nodes:  # a new map for each change
            self._counted = nodes
            self._counts = Counter(node.state for node_id, node in nodes.items() if node_id != ROOT)
        return self._counts

    def elapsed_s(self, now: datetime) -> float:
        """Return the run's wall-clock until now, over all sessions, without pauses."""
        last_at = None if self.chronicle.resting else self.chronicle.last_at
        return self.chronicle.elapsed_s + (max(0.0, (now - last_at).total_seconds()) if last_at else 0.0)

    def left_s(self, now: datetime) -> float | None:
        """Estimate when the first of its budgets is used up, at the pace of late; null: too early to say."""
        state = self.chronicle.state
        budget = state.settings.budget
        limit = None if budget.wall_clock_s is None else max(0.0, budget.wall_clock_s - self.elapsed_s(now))
        if len(self._rounds_at) < _FEWEST_ROUNDS or self._began_at is None:
            return limit
        full = len(self._rounds_at) == _PACE_ROUNDS
        since, rounds = (self._rounds_at[0], _PACE_ROUNDS - 1) if full else (self._began_at, len(self._rounds_at))
        pace_s = (now - since).total_seconds() / rounds
        left = [pace_s * max(0, budget.max_rounds - state.rounds), *self._until_spent_s(now)]
        return min(left) if limit is None else min(limit, *left)

    def _spent(self) -> Spent:
        state = self.chronicle.state
        return Spent(state.usage, state.cost_usd)

    def _until_spent_s(self, now: datetime) -> Iterator[float]:
        """Yield for each of the models' budgets when it is used up, at the pace of this session."""
        budget, spent, before = self.chronicle.state.settings.budget, self._spent(), self._spent_before
        session_s = (now - (self._began_at or now)).total_seconds()
        for limit, used, used_before in (
            (budget.max_calls, spent.usage.calls, before.usage.calls),
            (budget.max_tokens, spent.usage.tokens, before.usage.tokens),
            (budget.max_cost_usd, spent.cost_usd, before.cost_usd),
        ):
            if limit is not None and used > used_before:
                yield session_s / (used - used_before) * max(0.0, limit - used)


def waiting_words(state: SearchState) -> str:
    """Say what was asked for and is not there yet: `2 answers of models, 1 build, 3 evaluations`; empty: nothing."""
    requests = [job.request for job in state.jobs.values() if not job.withheld]
    counts = (
        (sum(map(is_question, requests)), "answer of a model", "answers of models"),
        (sum(isinstance(request, BuildRequested) for request in requests), "build", "builds"),
        (sum(isinstance(request, _EVALUATION) for request in requests), "evaluation", "evaluations"),
    )
    return ", ".join(counted(count, one, many) for count, one, many in counts if count)


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
