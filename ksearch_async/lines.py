"""A line to a run: what it has done so far, and a way to order something of it, wherever its messages go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from actors.bus.base import Bus
from ksearch_async.chronicle import Chronicle
from ksearch_async.config import load_config
from ksearch_async.connection import open_bus
from ksearch_async.mailbox import Order, order_local
from ksearch_async.runs import RunFolder, not_begun, open_chronicle
from ksearch_async.watching import ask, find_place, find_run_id, leader_of, named_folder, read_chronicle
from messages.facts import Fact


class Line(Protocol):
    """Leads to one run."""

    run_id: str
    is_local: bool
    """The run is one of one process, in a folder here."""

    async def read(self) -> Chronicle:
        """Return the run as it is now."""

    async def leader(self) -> str:
        """Return who works on the run; empty if nobody does."""

    async def ask(self, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
        """Give an order, and return what was decided on it.

        None: it stands in the run's stream, and nobody has decided on it within that time.
        """


class LocalLine:
    """To a run of one process, by its folder."""

    is_local = True

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.run_id = folder.run_id
        self._journal_id = ""

    async def read(self) -> Chronicle:
        """See `Line.read`."""
        chronicle = await anyio.to_thread.run_sync(open_chronicle, self._folder)
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
    """To a run on a NATS server."""

    is_local = False

    def __init__(self, bus: Bus, run_id: str) -> None:
        self._bus = bus
        self.run_id = run_id

    async def read(self) -> Chronicle:
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
    """Open a line to the run that is meant by an id, a folder, `latest`, or nothing: the only one.

    Args:
        run: names it.
        nats: the server's addresses; null: as the run's folder says, else the environment's.
        runs_dir: where run folders are looked for.
        environment: may name a server, and who signs in there.
        credentials: file that says who this process is to the server.

    Raises:
        ConfigError: there is no such run.
        messages.errors.BusError: its server cannot be reached.
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
