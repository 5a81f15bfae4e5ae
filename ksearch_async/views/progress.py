"""One session of a run for the live view: work in flight, pace, use of the devices. Pure.

Time comes from the records' stamps and from the `now` that is passed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import accumulate, islice

import msgspec

from actors.planner.core.state import NodeState, SearchState, is_confirmation, is_question, number_of
from ksearch_async.runs.run import Run, Tried
from ksearch_async.views.lines import Narrator
from ksearch_async.views.text import counted
from messages.base import ROOT
from messages.codec import Record
from messages.events import CandidateEvaluated, JobsUnserved
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
"""Number of latest rounds from which the pace is computed."""
_FEWEST_ROUNDS = 2
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
    """Work in flight for a node, or for the tree as a whole."""

    verb: str
    """`writing`, `building`, `evaluating`, `confirming` (a candidate, even if its branch has ended), `planning`, or
    `waiting` (for another branch's verdict, or for the end)."""
    since_s: float | None = None
    """Seconds since it was requested, queueing included; null if nothing is requested."""


class Progress:
    """Follows one session of a run."""

    def __init__(self, chronicle: Run, narrator: Narrator, *, leads: bool = True, slots: int | None = None) -> None:
        """Follow a run. `slots` is the number of evaluations at once, where that is known."""
        self.chronicle = chronicle
        self.leads = leads
        self._tried_before = len(chronicle.tried)
        self._narrator = narrator
        self._utilisation = Utilisation(slots=slots)
        self._asked_at: dict[str, datetime] = {}
        self._began_at: datetime | None = None
        self._spent_before = self._spent()
        self._rounds_at: deque[datetime] = deque(maxlen=_PACE_ROUNDS)
        self._counts: Counter[NodeState] = Counter()
        self._counted: object = None
        """The nodes from which the counts were made."""

    def tell(self, record: Record) -> Iterator[str]:
        """Fold a record and yield its noteworthy lines: a new best, refused edits, losses, the reason of the run's end.

        Failed tries of a call are noteworthy when their kind is new.
        """
        at = datetime.fromisoformat(record.at)
        if self._began_at is None:
            self._began_at, self._spent_before = at, self._spent()
        known = set(self.chronicle.faults)
        for fact in self.chronicle.unfold(record):
            self._take(fact, at)
            if self._is_of_note(fact):
                yield self._narrator.line(fact)
        if isinstance(record.body, CandidateEvaluated):
            self._utilisation.take(record.body, at)
        if isinstance(record.body, JobsUnserved) or self.chronicle.faults.keys() - known:
            yield from self._narrator.event_lines(record.body)

    def latest(self, most: int) -> list[Tried]:
        """Return attempts of this session with something new, the latest first."""
        tried = reversed(self.chronicle.tried[self._tried_before :])
        return list(islice((one for one in tried if one.fact.round or one.fact.fate in ("unusable", "lost")), most))

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
        """Return the work in flight, by node; the planner's call is listed under the root."""
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
        """Number of model answers that are awaited."""
        return sum(is_question(job.request) and not job.withheld for job in self.chronicle.state.jobs.values())

    @property
    def evaluations(self) -> int:
        """Number of evaluations that were requested and have no verdict yet, begun or not."""
        jobs = self.chronicle.state.jobs.values()
        return sum(isinstance(job.request, _EVALUATION) and not job.withheld for job in jobs)

    @property
    def queue(self) -> int | None:
        """Number of requested evaluations that cannot have begun; null: the number of slots is not known yet."""
        slots = self._utilisation.slots()
        return None if slots is None else max(0, self.evaluations - slots)

    def devices(self, now: datetime) -> list[DeviceUse]:
        """Return the devices that gave verdicts in this session, with their recent utilisation."""
        since, is_timed = self._began_at or now, not self.chronicle.state.scored
        return self._utilisation.devices(now, since=since, is_waiting=self.evaluations > 0, is_timed=is_timed)

    def _since(self, job_id: str, now: datetime) -> float:
        """Return the seconds since a job was requested; jobs of earlier sessions were requested again at the start."""
        asked_at = self._asked_at.get(job_id) or self._began_at or now
        return max(0.0, (now - asked_at).total_seconds())

    def node_counts(self) -> Counter[NodeState]:
        """Count the nodes by state, without the root."""
        nodes = self.chronicle.state.nodes
        if self._counted is not nodes:  # a new map for each change
            self._counted = nodes
            self._counts = Counter(node.state for node_id, node in nodes.items() if node_id != ROOT)
        return self._counts

    def elapsed_s(self, now: datetime) -> float:
        """Return the run's wall-clock seconds until now, over all sessions, without pauses."""
        last_at = None if self.chronicle.resting else self.chronicle.last_at
        return self.chronicle.elapsed_s + (max(0.0, (now - last_at).total_seconds()) if last_at else 0.0)

    def left_s(self, now: datetime) -> float | None:
        """Estimate the seconds until the first budget is used up, at the recent pace; null: too early to tell."""
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

    def _spent(self) -> tuple[float, float, float]:
        state = self.chronicle.state
        return state.usage.calls, state.usage.tokens, state.cost_usd

    def _until_spent_s(self, now: datetime) -> Iterator[float]:
        budget = self.chronicle.state.settings.budget
        session_s = (now - (self._began_at or now)).total_seconds()
        limits = (budget.max_calls, budget.max_tokens, budget.max_cost_usd)
        for limit, used, before in zip(limits, self._spent(), self._spent_before, strict=True):
            if limit is not None and used > before:
                yield session_s / (used - before) * max(0.0, limit - used)


def waiting_words(state: SearchState) -> str:
    """Return the requests in flight as text: `2 answers of models, 1 build, 3 evaluations`; empty if none."""
    requests = [job.request for job in state.jobs.values() if not job.withheld]
    counts = (
        (sum(map(is_question, requests)), "answer of a model", "answers of models"),
        (sum(isinstance(request, BuildRequested) for request in requests), "build", "builds"),
        (sum(isinstance(request, _EVALUATION) for request in requests), "evaluation", "evaluations"),
    )
    return ", ".join(counted(count, one, many) for count, one, many in counts if count)


_WINDOW = timedelta(seconds=60)
_FEWEST = 4
"""Fewest verdicts within the window, so that long evaluations do not make it jump."""
_KEPT = 64
"""Verdicts that are kept for each device."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """Use of a device, or of the part of it that an evaluator process has."""

    name: str
    share: float
    """Share of wall-clock, 0 to 1, in which the lease was held, or in which an evaluation ran if nothing is timed."""
    verdicts: int
    """Number of verdicts in the session."""
    mean_s: float
    """Recent mean seconds of an evaluation, including the time before its lease."""


class _Span(msgspec.Struct, frozen=True):
    began: datetime
    held: datetime
    """Time from which it held the lease; equal to `ended` if it held none."""
    ended: datetime


class Utilisation:
    """Keeps the latest evaluations of each device."""

    def __init__(self, *, slots: int | None = None) -> None:
        """Begin. Without `slots`, the number of concurrent evaluations is the highest that was observed."""
        self._slots = slots
        self._spans: dict[tuple[str, str], deque[_Span]] = {}
        self._devices: dict[tuple[str, str], str] = {}
        self._verdicts: dict[tuple[str, str], int] = {}

    def take(self, evaluated: CandidateEvaluated, at: datetime) -> None:
        """Add a verdict."""
        key = (evaluated.worker, evaluated.unit)
        held = timedelta(seconds=evaluated.lease_s)
        wall = max(held, timedelta(seconds=evaluated.wall_s))
        self._devices[key] = evaluated.device
        self._verdicts[key] = self._verdicts.get(key, 0) + 1
        spans = self._spans.setdefault(key, deque(maxlen=_KEPT))
        spans.append(_Span(at - wall, at - held, at))

    def devices(self, now: datetime, *, since: datetime, is_waiting: bool, is_timed: bool) -> list[DeviceUse]:
        """Return the devices that gave verdicts, busiest first.

        Args:
            now: the window's end.
            since: begin of the session; the window does not reach back further.
            is_waiting: evaluations are in flight. Then the window ends with a device's latest verdict, if that is
                recent: its activity since is not known yet.
            is_timed: candidates are timed, under a lease.
        """
        several = len({worker for worker, _ in self._spans}) > 1
        found = []
        for key, spans in self._spans.items():
            latest = spans[-1].ended
            until = latest if is_waiting and now - latest < _WINDOW / 2 else now
            reach = max(_WINDOW, latest - spans[-min(_FEWEST, len(spans))].began)
            begin = max(since, until - reach)
            name = _name(key, self._devices[key], several=several)
            share = _share(spans, begin, until, is_timed=is_timed)
            mean_s = sum((span.ended - span.began).total_seconds() for span in spans) / len(spans)
            found.append(DeviceUse(name=name, share=share, verdicts=self._verdicts[key], mean_s=mean_s))
        return sorted(found, key=lambda use: (-use.share, use.name))

    def slots(self) -> int | None:
        """Return the number of concurrent evaluations; null: not known yet."""
        if self._slots is not None:
            return self._slots
        return sum(_most_at_once(spans) for spans in self._spans.values()) or None


def _share(spans: Iterable[_Span], begin: datetime, end: datetime, *, is_timed: bool) -> float:
    if begin >= end:
        return 0.0
    starts = ((span.held if is_timed else span.began, span.ended) for span in spans)
    held = _united((max(start, begin), min(stop, end)) for start, stop in starts)
    return sum((stop - start).total_seconds() for start, stop in held) / (end - begin).total_seconds()


def _name(key: tuple[str, str], device: str, *, several: bool) -> str:
    worker, unit = key
    if several and worker:
        return f"{worker} {unit}".rstrip()
    return unit or device


def _united(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    united: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((begin, end))
    return united


def _most_at_once(spans: Iterable[_Span]) -> int:
    steps = sorted(step for span in spans for step in ((span.began, 1), (span.ended, -1)))
    return max(accumulate(change for _, change in steps), default=0)
