"""A run's past: the fold of the decisions in its stream, and the events that are not decided on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from actors.bus.base import Bus
from actors.bus.stream import body_of
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.jobs import JobRequest, Texts
from messages.base import ProtocolError
from messages.codec import Body
from messages.events import (
    ClockTicked,
    ContinueRequested,
    Event,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import Decided, Fact, PlanRequested, RunFinished, SearchReopened
from messages.models import Lineup
from messages.steering import SteeringRequested

_OF_ONE_SESSION = StopRequested | PauseRequested | ContinueRequested | ClockTicked


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a planner needs to continue a run."""

    state: SearchState
    texts: Texts
    pending: tuple[tuple[int, Event], ...]
    """Undecided events in order of handling, with their sequence numbers."""
    asked: Mapping[str, SearchState]
    """Unanswered jobs by id, with the state right after their request."""
    finished: RunFinished | None
    """The end of the run, unless it has been reopened since."""
    last_seq: int
    last_decision: int

    @property
    def lineup(self) -> Lineup:
        """Models to ask from now on; an undecided start or resumption may name them."""
        openings = [event.lineup for _, event in self.pending if isinstance(event, RunStarted | RunResumed)]
        return next((lineup for lineup in reversed(openings) if lineup is not None), self.state.lineup)

    @property
    def pending_resumption(self) -> bool:
        """True if a resumption is still undecided."""
        return any(isinstance(event, RunResumed) for _, event in self.pending)


async def read_history(bus: Bus, run_id: str) -> History:
    """Read a run's stream up to its current end.

    Raises:
        messages.base.BusError: the stream cannot be read.
        messages.codec.CodecError: it contains something that is not one of our records.
        messages.base.ProtocolError: it contains a planner's record that this release cannot read, and so cannot follow.
    """
    last = await bus.open_stream(run_id)
    folding = Folding()
    if last:
        events = bus.events(run_id)
        async for posted in events:
            body = body_of(posted)
            if body is None and posted.role == "planner":
                raise ProtocolError(
                    f"record {posted.seq} of run {run_id!r} is of a newer release: lead the run with that one"
                )
            folding.take(posted.seq, body)
            if posted.seq >= last:
                break
        await events.aclose()
    return folding.history()


def fold(records: Iterable[tuple[int, Body]]) -> History:
    """Fold records that are on disk."""
    folding = Folding()
    for seq, body in records:
        folding.take(seq, body)
    return folding.history()


class Folding:
    """Folds records in order. Decisions change the state; events wait for their decisions."""

    def __init__(self) -> None:
        self.state = SearchState()
        self.texts = Texts()
        self._waiting: dict[int, Event] = {}
        self._asked: dict[str, SearchState] = {}
        self._finished: RunFinished | None = None
        self._last_seq = 0
        self._last_decision = 0

    def take(self, seq: int, body: Body | None) -> None:
        """Fold one record; None stands for an omitted one."""
        self._last_seq = seq
        if body is None:
            return
        if not isinstance(body, Decided):
            self.texts.take(body)
            self._waiting[seq] = body
            return
        cause = self._waiting.pop(body.cause, None)
        if isinstance(cause, RunResumed):
            self._waiting = _without_void(self._waiting, body.cause)
        elif not isinstance(cause, RunStarted) and not (self.state.finished and isinstance(cause, SteeringRequested)):
            # Events are decided on in order: those before this one led to nothing, and must not lead to something in a
            # later state.
            self._waiting = {at: event for at, event in self._waiting.items() if at > body.cause}
        self._last_decision = seq
        for fact in body.facts:
            self._fold(fact)
        if len(self._asked) > 2 * len(self.state.jobs) + 64:
            self._forget_answered()

    def _fold(self, fact: Fact) -> None:
        self.state = evolve(self.state, fact)
        if isinstance(fact, JobRequest | PlanRequested):
            self._asked[fact.job_id] = self.state
        elif isinstance(fact, RunFinished):
            self._finished = fact
        elif isinstance(fact, SearchReopened):
            self._finished = None

    def _forget_answered(self) -> None:
        self._asked = {job_id: at for job_id, at in self._asked.items() if job_id in self.state.jobs}

    def history(self) -> History:
        """Return the result of the fold so far."""
        self._forget_answered()
        return History(
            state=self.state,
            texts=self.texts,
            pending=_in_handling_order(self._waiting, steers_first=self.state.finished),
            asked=self._asked,
            finished=self._finished,
            last_seq=self._last_seq,
            last_decision=self._last_decision,
        )


def _in_handling_order(waiting: dict[int, Event], *, steers_first: bool) -> tuple[tuple[int, Event], ...]:
    """Put the latest resumption first: it lifts a stop, and earlier events were meant for the stopped run.

    Only an undecided start of the run and orders to a finished run come before it. Requests to stop and ticks from
    before the resumption are void.
    """
    resumed = [seq for seq, event in waiting.items() if isinstance(event, RunResumed)]
    if not resumed:
        return tuple(waiting.items())
    latest = resumed[-1]
    kept = {seq: event for seq, event in _without_void(waiting, latest).items() if not isinstance(event, RunResumed)}
    early = RunStarted | SteeringRequested if steers_first else RunStarted
    start = tuple((seq, event) for seq, event in kept.items() if seq < latest and isinstance(event, early))
    rest = tuple(item for item in kept.items() if item not in start)
    return (*start, (latest, waiting[latest]), *rest)


def _without_void(waiting: dict[int, Event], resumed_at: int) -> dict[int, Event]:
    return {
        seq: event for seq, event in waiting.items() if not (seq < resumed_at and isinstance(event, _OF_ONE_SESSION))
    }
