"""The state of a run as people see it: a fold of its journal, and the use of its devices. Pure.

Pure: verdicts in, shares out. A verdict says how long its lease was held until just before; what is being timed now is
not known before its verdict comes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Literal, TypeAlias

import msgspec

from actors.planner.core.evolve import Step, evolve
from actors.planner.core.state import Incumbent, Provisional, SearchState, path_titles
from actors.planner.core.steering import carry_out
from evaluators.hardware.roofline import Roofline, roofline
from messages.base import ROOT, Role
from messages.codec import Record
from messages.events import (
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ContinueRequested,
    EditsProposed,
    Event,
    JobLost,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import (
    AttemptFinished,
    ConfirmationFinished,
    Decided,
    Fact,
    IncumbentChanged,
    RunFinished,
    SearchReopened,
    SpendRecorded,
)
from messages.steering import SteeringRequested
from messages.verdicts import Measured, Scored, TimedWorkload

DUPLICATE = "duplicate"
Standing: TypeAlias = Literal["running", "paused", "stopping", "finished"]
_ROLES: dict[type, Role] = {CandidateWritten: "coder", CandidateBuilt: "builder", CandidateEvaluated: "evaluator"}


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """A run's incumbent, as it is shown: a kernel that was timed."""

    candidate_id: str
    path: str
    """Folder that holds its files."""
    node_id: str
    found_by: tuple[str, ...]
    """Titles of the actions from the root's child down to its node."""
    round: int
    speedup_vs_reference: float
    speedup_interval: tuple[float, float]
    """95 % interval; its lower bound is the credit."""
    latency_us: float
    """Median over timed calls."""
    reference_latency_us: float | None
    """The same for the reference, interleaved with the candidate's calls."""
    device: str
    screen_speedup: float | None = None
    """What its first measurement had said, before the one that counts; null if it was measured once."""
    workloads: tuple[TimedWorkload, ...] = ()
    """Each of several workloads; latencies and speedups above are geometric means then."""
    roofline_us: float | None = None
    """Least time by the device's data sheet; null where it is not known, or there are several workloads."""
    roofline_limited_by: str = ""
    """`memory`: a lower bound. `arithmetic`: an estimate, by the operations of the reference."""

    @property
    def faster(self) -> bool:
        """Say whether the whole interval lies above the reference."""
        return self.speedup_interval[0] > 1.0

    @property
    def roofline_words(self) -> str:
        """How near it is to what the device allows, to follow a latency; empty where that is not known."""
        if self.roofline_us is None:
            return ""
        percent = 100 * self.roofline_us / self.latency_us
        return f", {percent:.0f} % of the roofline ({self.roofline_us:.2f} us, {self.roofline_limited_by})"


class BestScore(msgspec.Struct, frozen=True, kw_only=True):
    """A run's incumbent, as it is shown: a program that was scored."""

    candidate_id: str
    path: str
    node_id: str
    found_by: tuple[str, ...]
    round: int
    score: float
    """By the task's own evaluator; larger is better."""
    initial_score: float | None
    """The initial program's; null while that is not known."""
    metrics: dict[str, float | str]
    device: str

    @property
    def faster(self) -> bool:
        """Say whether the score is above the initial program's."""
        return self.initial_score is not None and self.score > self.initial_score


class Chronicle:
    """Folds a run's records, one after the other."""

    def __init__(self) -> None:
        self.state = SearchState()
        self.started: RunStarted | None = None
        self.last_seq = 0
        self.elapsed_s = 0.0
        """Wall-clock over all sessions, without pauses, from the records' stamps."""
        self.last_at: datetime | None = None
        """Stamp of the latest record."""
        self.fates: Counter[str] = Counter()
        """Attempts by fate; `DUPLICATE` counts those that wrote a known candidate."""
        self.faults: Counter[str] = Counter()
        """Failed tries of model calls, by kind; the calls may have gone on."""
        self.unpriced_calls = 0
        """Answers whose price is not known."""
        self.workers: dict[Role, Counter[str]] = {}
        """Results by the process that they came from, where there are several processes."""
        self.was_asked_to_rest = False
        """Somebody asked this session to stop or to pause, whether its planner has heard of it or not."""
        self.finished: RunFinished | None = None
        self.curve: list[float] = []
        """The incumbent's speedup (its credit, where time means nothing) after each round; 0 while there is none."""
        self.confirmations: list[ConfirmationFinished] = []
        self.undecided: dict[int, SteeringRequested] = {}
        """What people ordered and nobody has decided on, by its place in the stream."""
        self._incumbent: CandidateEvaluated | None = None
        self._measured: dict[str, CandidateEvaluated] = {}
        self._judged: dict[str, str] = {}

    def fold(self, record: Record) -> None:
        """Take one record."""
        for _ in self.unfold(record):
            pass

    def unfold(self, record: Record) -> Iterator[Fact]:
        """Take one record, and yield each of its facts right after it was folded."""
        body = record.body
        at = datetime.fromisoformat(record.at)
        goes_on = self.finished is None and not self.resting
        if self.last_at is not None and goes_on and not isinstance(body, RunResumed):
            self.elapsed_s += max(0.0, (at - self.last_at).total_seconds())
        self.last_seq, self.last_at = record.seq, at
        if isinstance(body, SteeringRequested):
            self.undecided[record.seq] = body
        if isinstance(body, Decided):
            self.undecided.pop(body.cause, None)
            for fact in body.facts:
                self._fold_fact(fact)
                yield fact
        else:
            self._fold_event(body)

    @property
    def waiting(self) -> Provisional | None:
        """Of the candidates that may be better than the incumbent, and wait to be confirmed, the best."""
        return max(self.state.provisional.values(), key=lambda found: found.credit, default=None)

    @property
    def top(self) -> Incumbent | Provisional | None:
        """The incumbent, or a candidate whose only measurement so far was better."""
        return self.waiting or self.state.incumbent

    @property
    def outlook(self) -> SearchState:
        """The search as it will be when what people ordered has been decided on."""
        step = Step(self.state)
        for asked in self.undecided.values():
            carry_out(step, asked.order)
        return step.state

    @property
    def resting(self) -> bool:
        """Say whether the run is paused."""
        return self.state.running and self.state.paused

    def worker_of(self, candidate_id: str | None) -> str:
        """Return which process judged a candidate last; empty in a run of one process."""
        return self._judged.get(candidate_id or "", "")

    def best(self, folder: str) -> Best | BestScore | None:
        """Return the incumbent; `folder` is where its files lie."""
        incumbent, evaluated = self.state.incumbent, self._incumbent
        if incumbent is None or evaluated is None:
            return None
        verdict, found_by = evaluated.verdict, path_titles(self.state, incumbent.node_id)
        if isinstance(verdict, Scored):
            initial = self.state.node(ROOT).best
            return BestScore(
                candidate_id=incumbent.candidate_id,
                path=folder,
                node_id=incumbent.node_id,
                found_by=found_by,
                round=incumbent.round,
                score=verdict.score,
                initial_score=initial.credit if initial else None,
                metrics=verdict.metrics,
                device=evaluated.device,
            )
        if not isinstance(verdict, Measured) or incumbent.speedup is None or incumbent.latency_us is None:
            return None
        interval, bound = verdict.speedup_interval, self.roofline()
        return Best(
            candidate_id=incumbent.candidate_id,
            path=folder,
            node_id=incumbent.node_id,
            found_by=found_by,
            round=incumbent.round,
            speedup_vs_reference=incumbent.speedup,
            speedup_interval=(incumbent.credit, interval.high if interval else incumbent.speedup),
            latency_us=incumbent.latency_us,
            reference_latency_us=verdict.reference_latency_us,
            device=evaluated.device,
            screen_speedup=incumbent.screen_speedup,
            workloads=verdict.workloads,
            roofline_us=bound.time_us if bound else None,
            roofline_limited_by=bound.limited_by if bound else "",
        )

    def roofline(self) -> Roofline | None:
        """Return the least time by the device's data sheet; none where that is unknown, or workloads are several."""
        started = self.started
        if started is None or started.description.workloads:
            return None
        return roofline(started.description, started.target)

    def untimed(self) -> tuple[str, ...]:
        """Return the ids of the candidates that are correct and could not be timed, in order of their verdicts."""
        return tuple(
            candidate_id
            for candidate_id, evaluated in self._measured.items()
            if isinstance(evaluated.verdict, Measured) and not evaluated.verdict.timed
        )

    def measured(self, candidate_id: str | None) -> Measured | None:
        """Return the latest verdict on a candidate that was measured."""
        evaluated = self._measured.get(candidate_id or "")
        return evaluated.verdict if evaluated and isinstance(evaluated.verdict, Measured) else None

    def _fold_event(self, event: Event) -> None:
        if isinstance(event, CandidateWritten | EditsProposed | JobLost):
            self.faults.update(fault.words for fault in event.faults)
        if isinstance(event, CandidateWritten | CandidateBuilt | CandidateEvaluated) and event.worker:
            self.workers.setdefault(_ROLES[type(event)], Counter())[event.worker] += 1
        if isinstance(event, RunStarted):
            self.started = event
        elif isinstance(event, StopRequested | PauseRequested):
            self.was_asked_to_rest = True
        elif isinstance(event, RunResumed | ContinueRequested):
            self.was_asked_to_rest = False
        elif isinstance(event, CandidateEvaluated):
            self._judged[event.candidate_id] = event.worker
            if isinstance(event.verdict, Measured | Scored):
                self._measured[event.candidate_id] = event

    def _fold_fact(self, fact: Fact) -> None:
        self.state = evolve(self.state, fact)
        if isinstance(fact, AttemptFinished):
            self.fates[DUPLICATE if repeats_known(fact) else fact.fate] += 1
            if fact.round:
                self.curve.append(self.curve[-1] if self.curve else 0.0)
        elif isinstance(fact, ConfirmationFinished):
            self.confirmations.append(fact)
        elif isinstance(fact, IncumbentChanged):
            self.curve[-1:] = [fact.credit if fact.speedup is None else fact.speedup]
            self._incumbent = self._measured.get(fact.candidate_id)
        elif isinstance(fact, SpendRecorded):
            self.unpriced_calls += fact.usage.calls if fact.cost_usd is None else 0
        elif isinstance(fact, RunFinished):
            self.finished = fact
        elif isinstance(fact, SearchReopened):
            self.finished = None


def repeats_known(fact: AttemptFinished) -> bool:
    """Say whether the attempt wrote what an earlier one had written: its verdict was known, nothing was evaluated."""
    return fact.round == 0 and fact.fate not in ("unusable", "declined", "lost")


def standing_of(chronicle: Chronicle) -> Standing:
    """Say in a word what a run is doing."""
    if chronicle.finished is not None:
        return "finished"
    if chronicle.state.status == "stopping":
        return "stopping"
    return "paused" if chronicle.resting else "running"


_WINDOW = timedelta(seconds=60)
_FEWEST = 4
"""Verdicts that the window is long enough for at least, so that long evaluations do not come and go in it."""
_KEPT = 64
"""Verdicts that are kept of each device."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device, or the part of one that an evaluator process has."""

    name: str
    share: float
    """Of wall-clock, 0 to 1, for which the lease was held, or, where nothing is timed, an evaluation was under way."""
    verdicts: int
    """Of the session."""
    mean_s: float
    """Seconds that an evaluation took of late, what came before its lease included."""


class _Span(msgspec.Struct, frozen=True):
    began: datetime
    held: datetime
    """Since when it held the lease; `ended`, if it held none."""
    ended: datetime


class Utilisation:
    """Keeps the latest evaluations of each device."""

    def __init__(self, *, slots: int | None = None) -> None:
        """Keep them.

        Args:
            slots: evaluations that are worked on at once; null: as many as were seen to be, since workers come and go.
        """
        self._slots = slots
        self._spans: dict[tuple[str, str], deque[_Span]] = {}
        self._devices: dict[tuple[str, str], str] = {}
        self._verdicts: dict[tuple[str, str], int] = {}

    def take(self, evaluated: CandidateEvaluated, at: datetime) -> None:
        """Take a verdict."""
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
            since: when the session began; the window does not reach back further.
            is_waiting: evaluations are under way. The window ends with a device's latest verdict then, if that is not
                long ago: what it does since is not known yet.
            is_timed: what is judged has times, which are taken under a lease.
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
        """Return how many evaluations are worked on at once; null: nothing tells yet."""
        if self._slots is not None:
            return self._slots
        return sum(_most_at_once(spans) for spans in self._spans.values()) or None


def _share(spans: Iterable[_Span], begin: datetime, end: datetime, *, is_timed: bool) -> float:
    """Return for which part of a stretch of time a device was held."""
    if begin >= end:
        return 0.0
    starts = ((span.held if is_timed else span.began, span.ended) for span in spans)
    held = _united((max(start, begin), min(stop, end)) for start, stop in starts)
    return sum((stop - start).total_seconds() for start, stop in held) / (end - begin).total_seconds()


def _name(key: tuple[str, str], device: str, *, several: bool) -> str:
    """Name a device: by its unit, with the process that has it where there are several."""
    worker, unit = key
    if several and worker:
        return f"{worker} {unit}".rstrip()
    return unit or device


def _united(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the stretches of time that lie in any of the spans."""
    united: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((begin, end))
    return united


def _most_at_once(spans: Iterable[_Span]) -> int:
    """Return how many evaluations of a device were under way at once, at most."""
    steps = sorted(step for span in spans for step in ((span.began, 1), (span.ended, -1)))
    return max(accumulate(change for _, change in steps), default=0)
