"""The runs that are open, and the list of all runs. A run is opened when somebody looks at it or it goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from ksearch_async.roster import Roster
from ksearch_async.web.opened import OpenedRun
from ksearch_async.web.places import Found, Place, PlaceKind
from ksearch_async.web.rows import Row, row_of, unread_row
from messages.errors import KsearchError

LOOK_S = 1.0
"""How often places are looked at for runs."""
IDLE_S = 600.0
"""A run that nobody looks at is dropped after so long."""
KEPT_RUNS, KEPT_UPDATES = 12, 40_000
"""Of runs that nobody looks at, so many are kept at most, and of all of them together so many updates: about 100 MB.
The list reads all runs; the newest are there at once when somebody wants them."""

log = structlog.get_logger(__name__)


class UnknownRunError(KsearchError):
    """There is no run of this name."""


class Shelf:
    """Runs of one or more places. `keep` does its work; the rest needs that to go on."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        idle_s: float = IDLE_S,
        kept_updates: int = KEPT_UPDATES,
        look_s: float = LOOK_S,
    ) -> None:
        """Say where runs are looked for; of two places that have a run, the first counts."""
        self._places = places
        self._kept_updates = kept_updates
        self._idle_s = idle_s
        self._look_s = look_s
        self._tasks: TaskGroup | None = None
        self._opened: dict[str, OpenedRun] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._opening = anyio.Lock()
        self._rows: dict[str, tuple[Found, Row]] = {}
        self._changed = anyio.Event()
        self.version = 0
        """Another one whenever the list of runs has changed."""

    async def keep(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the opened runs and keep the list, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            while True:
                await self._look()
                self._sweep()
                await anyio.sleep(self._look_s)

    @property
    def kinds(self) -> list[PlaceKind]:
        """Where runs are looked for."""
        return [place.kind for place in self._places]

    @property
    def open_runs(self) -> list[str]:
        """The runs that are kept in memory."""
        return list(self._opened)

    def rows(self) -> list[Row]:
        """Return the list of runs, the newest first."""
        rows = [row for _, row in self._rows.values()]
        return sorted(rows, key=lambda row: (row.started_at, row.run_id), reverse=True)

    async def roster(self) -> Roster:
        """Return who takes part in the runs; nobody where there is no server.

        Raises:
            messages.errors.BusError: the server cannot be asked.
        """
        for place in self._places:
            if (roster := await place.roster()) is not None:
                return roster
        return Roster(at=datetime.now(UTC).isoformat(timespec="milliseconds"), nodes=(), runs=())

    async def change(self, version: int) -> None:
        """Wait until the list is another one."""
        while self.version == version:
            await self._changed.wait()

    @asynccontextmanager
    async def run(self, run_id: str) -> AsyncIterator[OpenedRun]:
        """Have a run open for as long as the context lasts, read up to where it is now.

        Raises:
            UnknownRunError: there is none of this name.
            messages.errors.KsearchError: it cannot be read.
        """
        opened = await self._open(run_id)
        opened.watchers += 1
        try:
            await opened.current()
            yield opened
        finally:
            opened.watchers -= 1
            opened.left_at = anyio.current_time()

    async def place_of(self, run_id: str) -> Place:
        """Return where a run is.

        Raises:
            UnknownRunError: there is none of this name.
        """
        for place in self._places:
            if await place.feed(run_id) is not None:
                return place
        raise _unknown(run_id)

    async def _open(self, run_id: str) -> OpenedRun:
        async with self._opening:
            opened = self._opened.get(run_id)
            if opened is not None and opened.failure is None:
                return opened
            for place in self._places:
                feed = await place.feed(run_id)
                if feed is not None:
                    return self._put_up(OpenedRun(run_id, feed))
        raise _unknown(run_id)

    def _put_up(self, opened: OpenedRun) -> OpenedRun:
        if self._tasks is None:
            raise RuntimeError("a shelf opens runs while `keep` goes on")
        scope = anyio.CancelScope()

        async def follow() -> None:
            with scope:
                await opened.follow()

        self._opened[opened.run_id] = opened
        self._scopes[opened.run_id] = scope
        self._tasks.start_soon(follow, name=f"follow {opened.run_id}")
        return opened

    def _sweep(self) -> None:
        """Drop the runs that nobody needs, those that were left first before others."""
        now, runs, updates = anyio.current_time(), 0, 0
        for opened in sorted(self._opened.values(), key=lambda each: each.left_at, reverse=True):
            if opened.failure is None and (opened.watchers or self._goes_on(opened.run_id)):
                continue
            runs, updates = runs + 1, updates + opened.count
            is_too_much = runs > KEPT_RUNS or updates > self._kept_updates
            if opened.failure is not None or now - opened.left_at > self._idle_s or is_too_much:
                self._drop(opened.run_id)

    def _goes_on(self, run_id: str) -> bool:
        """Say whether somebody works on a run: the list would open it again at once."""
        return run_id in self._rows and self._rows[run_id][0].is_led

    def _drop(self, run_id: str) -> None:
        self._scopes.pop(run_id).cancel()
        del self._opened[run_id]

    async def _look(self) -> None:
        """Bring the list up to date."""
        found = await self._found()
        gone, new = self._rows.keys() - found.keys(), found.keys() - self._rows.keys()
        for run_id in gone:
            del self._rows[run_id]
            if run_id in self._opened and not self._opened[run_id].watchers:
                self._drop(run_id)
        for run_id in new:
            each, place = found[run_id]
            self._rows[run_id] = (msgspec.structs.replace(each, version=None), unread_row(each, place.kind))
        if gone or new:
            self._tell()
        for each, place in sorted(found.values(), key=lambda pair: pair[0].changed_at, reverse=True):
            await self._bring_up(each, place)

    async def _found(self) -> dict[str, tuple[Found, Place]]:
        """Return the runs that are there; of a place that cannot be looked at, those that were."""
        found: dict[str, tuple[Found, Place]] = {}
        for place in self._places:
            try:
                there = await place.runs()
            except KsearchError as error:
                log.warning("runs cannot be listed", place=place.kind, error=str(error))
                there = self._known(place.kind)
            for each in there:
                found.setdefault(each.run_id, (each, place))
        return found

    def _known(self, kind: PlaceKind) -> list[Found]:
        return [found for found, row in self._rows.values() if row.place == kind]

    async def _bring_up(self, found: Found, place: Place) -> None:
        known, row = self._rows[found.run_id]
        opened = self._opened.get(found.run_id)
        if opened is not None and opened.is_current:
            fresh = row_of(found, opened, place.kind)
        elif known != found:
            fresh = await self._row(found, place)
        else:
            return
        self._rows[found.run_id] = (found, fresh)
        if fresh != row:
            self._tell()

    async def _row(self, found: Found, place: Place) -> Row:
        """Read a run that is not open; one of the past stays open while there is room."""
        try:
            async with self.run(found.run_id) as opened:
                if opened.failure is not None:
                    raise opened.failure
                row = row_of(found, opened, place.kind)
        except KsearchError as error:
            return unread_row(found, place.kind, error=str(error))
        is_idle = not found.is_led and not opened.watchers and self._opened.get(found.run_id) is opened
        updates = sum(each.count for each in self._opened.values())
        if is_idle and (len(self._opened) > KEPT_RUNS or updates > self._kept_updates):
            self._drop(found.run_id)
        return row

    def _tell(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = anyio.Event()


def _unknown(run_id: str) -> UnknownRunError:
    error = UnknownRunError(f"no run {run_id!r}")
    error.add_note("the list of runs has those that are there")
    return error
