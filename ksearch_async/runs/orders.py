"""Orders to a run, local or on a server: sends them, waits for the answer, and returns the outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio.to_thread
import msgspec

from actors.bus.base import Bus
from actors.planner.core.evolve import Step, evolve
from actors.planner.core.state import SearchState
from actors.planner.core.steering import carry_out
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import open_bus
from ksearch_async.fleet.status import ask, find_place, find_run_id, leader_of, named_folder, read_chronicle
from ksearch_async.runs.folder import RunFolder, not_begun, read_run
from ksearch_async.runs.mailbox import order_local
from ksearch_async.runs.run import Order, Run, Standing
from ksearch_async.settings.run_config import load_config
from ksearch_async.views.lines import steering_words
from messages.base import ConfigError
from messages.facts import Fact
from messages.steering import Steering, SteeringRefused, SteeringRequested


class Line(Protocol):
    """A way to read one run and to give it orders."""

    run_id: str
    is_local: bool
    """True for a run of one process, in a folder of this host."""

    async def read(self) -> Run:
        """Return the run as it is now."""

    async def leader(self) -> str:
        """Return the process that works on the run; empty if none does."""

    async def ask(self, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
        """Give an order, and return what was decided on it.

        None: it is in the run's stream, and no leader has decided on it within that time.
        """


class LocalLine:
    """A line to a run of one process, by its folder."""

    is_local = True

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.run_id = folder.run_id
        self._journal_id = ""

    async def read(self) -> Run:
        """See `Line.read`."""
        chronicle = await anyio.to_thread.run_sync(read_run, self._folder)
        if chronicle.started is not None:  # a folder may have been renamed, or be a copy
            self._journal_id = chronicle.started.run_id
        return chronicle

    async def leader(self) -> str:
        """See `Line.leader`."""
        return "a process here" if await anyio.to_thread.run_sync(self._folder.in_use) else ""

    async def ask(self, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
        """See `Line.ask`."""
        return await order_local(self._folder, self._journal_id or self.run_id, order, patience_s=patience_s)


class ServerLine:
    """A line to a run on a NATS server."""

    is_local = False

    def __init__(self, bus: Bus, run_id: str) -> None:
        self._bus = bus
        self.run_id = run_id

    async def read(self) -> Run:
        """See `Line.read`."""
        return await read_chronicle(self._bus, self.run_id)

    async def leader(self) -> str:
        """See `Line.leader`."""
        return await leader_of(self._bus, self.run_id)

    async def ask(self, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
        """See `Line.ask`."""
        return await ask(self._bus, self.run_id, order, patience_s=patience_s)


@asynccontextmanager
async def open_line(
    run: str, nats: str | None, runs_dir: Path, environment: Mapping[str, str], *, credentials: Path | None = None
) -> AsyncIterator[Line]:
    """Open a line to the run named by an id, a folder or `latest`; with no name, to the only run.

    Raises:
        ConfigError: there is no such run.
        messages.base.BusError: its server cannot be reached.
    """
    folder = None if nats else named_folder(run, runs_dir, has_server=bool(environment.get("KSEARCH_NATS")))
    if folder is not None and load_config(folder.config).nats is None:
        if not folder.journal.exists():
            raise not_begun(folder.run_id)
        yield LocalLine(folder)
        return
    place = find_place(run, nats, runs_dir, environment)
    named = {} if place.is_private else environment
    async with open_bus(place.address, named, role="planner", credentials=credentials) as bus:
        yield ServerLine(bus, await find_run_id(bus, place.run_id))


PATIENCE_S = 20.0
"""Seconds that the planner may take. A standby needs as long as a lease lasts to take over."""

Verb: TypeAlias = Literal["stop", "pause", "continue"]
_WORDS: dict[Verb, str] = {
    "stop": "stopping: evaluations in flight are finished first",
    "pause": "paused: what is in flight is finished, nothing new begins",
    "continue": "goes on",
}
_ALREADY: dict[tuple[Verb, Standing], str] = {
    ("stop", "stopping"): "is stopping already",
    ("stop", "finished"): "is over already",
    ("pause", "paused"): "is paused already",
    ("continue", "running"): "is not paused",
}
_RESULTS: dict[Verb, Standing] = {"stop": "stopping", "pause": "paused", "continue": "running"}


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of asking a run to stop, pause or continue."""

    taken: bool
    """True if the leader has accepted the order."""
    standing: Standing
    said: str = ""
    failure: str = ""
    """Reason why it has no effect before somebody else leads the run; empty if it has."""
    hint: str = ""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an order about the search."""

    taken: bool
    """True if it was decided on. If not, it is recorded, and takes effect when the run continues."""
    standing: Standing
    """State before the order."""
    facts: tuple[Fact, ...]
    """Facts that were decided, or will be decided."""
    words: tuple[str, ...]
    """The facts in words."""
    notes: tuple[str, ...] = ()
    """Reason why it has no effect yet, and what to do."""


async def steer(line: Line, verb: Verb, order: Order) -> Answered:
    """Ask a run to stop, pause or continue.

    Raises:
        ConfigError: the run's state does not allow it.
        messages.base.BusError: the run cannot be reached.
    """
    run_id, chronicle = line.run_id, await begun(line)
    standing = chronicle.standing
    if (verb, standing) in _ALREADY:
        return await _already(line, standing, f"run {run_id} {_ALREADY[verb, standing]}")
    if standing in ("stopping", "finished"):
        words = rest_words(chronicle) if standing == "finished" else "is stopping"
        raise refusal(f"run {run_id!r} {words}: it cannot {verb}", resume_words(run_id, chronicle))
    if line.is_local and not await line.leader():
        raise _killed(run_id)
    if await line.ask(order, patience_s=PATIENCE_S) is not None:
        return Answered(taken=True, standing=_RESULTS[verb], said=f"run {run_id} {_WORDS[verb]}")
    leader = await line.leader()
    who = f"{leader} leads it and does not answer" if leader else "no planner leads it"
    failure = f"run {run_id} was asked to {verb}, and {who}: its next planner does it"
    return Answered(taken=False, standing=standing, failure=failure)


async def _already(line: Line, standing: Standing, said: str) -> Answered:
    if standing != "stopping" or await line.leader():
        return Answered(taken=False, standing=standing, said=said)
    if line.is_local:
        raise _killed(line.run_id)
    hint = f"ksearch planner {line.run_id} does, or ksearch resume {line.run_id}"
    failure = f"no planner leads run {line.run_id}, which was to stop: its next planner ends it"
    return Answered(taken=False, standing=standing, failure=failure, hint=hint)


def _killed(run_id: str) -> ConfigError:
    return refusal(f"run {run_id!r} is not running: its process was killed", f"ksearch resume {run_id} goes on with it")


async def begun(line: Line) -> Run:
    """Return the run that a line leads to.

    Raises:
        ConfigError: no event of it is recorded.
    """
    chronicle = await line.read()
    if chronicle.started is None:
        raise refusal(
            f"run {line.run_id!r} has not begun yet",
            "it waits for an evaluator, or its reference is being checked; if nothing leads it, start it again under "
            "another name",
        )
    return chronicle


async def give(line: Line, chronicle: Run, steering: Steering) -> Given:
    """Give an order, unless it is already clear that it will be refused."""
    rehearsed = Step(chronicle.outlook)
    carry_out(rehearsed, steering)
    _check(tuple(rehearsed.facts))
    standing = chronicle.standing
    is_led = bool(await line.leader()) and standing != "finished"
    patience_s = PATIENCE_S if is_led or line.is_local else 0.0
    decided = await line.ask(SteeringRequested(order=steering), patience_s=patience_s)
    facts = tuple(rehearsed.facts) if decided is None else decided
    _check(facts)
    return Given(
        taken=decided is not None,
        standing=standing,
        facts=tuple(fact for fact in facts if steering_words(fact, rehearsed.state)),
        words=tuple(_words(facts, chronicle.outlook)),
        notes=_notes(line.run_id, chronicle) if decided is None else (),
    )


def _notes(run_id: str, chronicle: Run) -> tuple[str, ...]:
    rest = rest_words(chronicle)
    return (
        f"run {run_id} {rest}: this is recorded, and takes effect when it goes on",
        f"hint: {resume_words(run_id, chronicle)}",
    )


def _words(facts: tuple[Fact, ...], state: SearchState) -> list[str]:
    said = []
    for fact in facts:
        state = evolve(state, fact)
        said.append(steering_words(fact, state))
    return [words for words in said if words]


def _check(facts: tuple[Fact, ...]) -> None:
    for fact in facts:
        if isinstance(fact, SteeringRefused):
            is_unknown = fact.reason.endswith("does not exist")
            raise refusal(fact.reason, "ksearch tree RUN shows the nodes") if is_unknown else refusal(fact.reason)


def rest_words(chronicle: Run) -> str:
    """Describe the state of a run that no process works on."""
    if chronicle.finished is None:
        return "is not running"
    return "is over" if chronicle.is_over else "is stopped"


def resume_words(run_id: str, chronicle: Run) -> str:
    """Return the command that resumes a run that no process works on."""
    larger = " --max-rounds N goes on, with a larger budget" if chronicle.is_over else " goes on with it"
    return f"ksearch resume {run_id}{larger}"
