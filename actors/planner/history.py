"""A run's past: the fold of the decisions in its stream, and the events that nobody has decided on yet."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actors.bus.base import Bus
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.texts import Texts
from messages.codec import Body, decode_body
from messages.events import ClockTicked, Event, RunResumed, RunStarted, StopRequested
from messages.facts import Decided


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What a planner needs in order to go on."""

    state: SearchState
    texts: Texts
    pending: tuple[tuple[int, Event], ...]
    """Events without a decision, in the order in which they are to be handled, with their sequence numbers."""
    last_seq: int
    last_decision: int


async def read_history(bus: Bus, run_id: str) -> History:
    """Read a run's stream up to its present end.

    Raises:
        messages.errors.BusError: the stream cannot be read.
        messages.codec.CodecError: it holds something that is no record of ours.
    """
    last = await bus.open_stream(run_id)
    folding = Folding()
    if last:
        events = bus.events(run_id)
        async for posted in events:
            folding.take(posted.seq, decode_body(posted.payload))
            if posted.seq >= last:
                break
        await events.aclose()
    return folding.history()


def fold(records: Iterable[tuple[int, Body]]) -> History:
    """Fold records that lie on disk."""
    folding = Folding()
    for seq, body in records:
        folding.take(seq, body)
    return folding.history()


class Folding:
    """Takes records in order. Decisions change the state; events wait for theirs."""

    def __init__(self) -> None:
        self.state = SearchState()
        self.texts = Texts()
        self._waiting: dict[int, Event] = {}
        self._last_seq = 0
        self._last_decision = 0

    def take(self, seq: int, body: Body) -> None:
        """Fold one record."""
        self._last_seq = seq
        if not isinstance(body, Decided):
            self.texts.take(body)
            self._waiting[seq] = body
            return
        if isinstance(self._waiting.pop(body.cause, None), RunResumed):
            self._waiting = _without_void(self._waiting, body.cause)
        self._last_decision = seq
        for fact in body.facts:
            self.state = evolve(self.state, fact)

    def history(self) -> History:
        """Return what was folded so far."""
        return History(
            state=self.state,
            texts=self.texts,
            pending=_in_handling_order(self._waiting),
            last_seq=self._last_seq,
            last_decision=self._last_decision,
        )


def _in_handling_order(waiting: dict[int, Event]) -> tuple[tuple[int, Event], ...]:
    """Put the latest resumption first: it lifts a stop, and what came before it was meant for the stopped run.

    Only the start of the run comes before it, if nobody has decided on that yet. Requests to stop and ticks from before
    the resumption are void.
    """
    resumed = [seq for seq, event in waiting.items() if isinstance(event, RunResumed)]
    if not resumed:
        return tuple(waiting.items())
    latest = resumed[-1]
    kept = {seq: event for seq, event in _without_void(waiting, latest).items() if not isinstance(event, RunResumed)}
    start = tuple((seq, event) for seq, event in kept.items() if isinstance(event, RunStarted))
    rest = tuple((seq, event) for seq, event in kept.items() if not isinstance(event, RunStarted))
    return (*start, (latest, waiting[latest]), *rest)


def _without_void(waiting: dict[int, Event], resumed_at: int) -> dict[int, Event]:
    """Leave out requests to stop and ticks from before a resumption: they were meant for the session before it."""
    return {
        seq: event
        for seq, event in waiting.items()
        if not (seq < resumed_at and isinstance(event, StopRequested | ClockTicked))
    }
