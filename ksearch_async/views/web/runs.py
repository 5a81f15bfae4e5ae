"""The runs of the dashboard: the list, opened runs with their updates, and server-sent events."""

from __future__ import annotations

import os
import stat
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from actors.bus.base import Bus
from ksearch_async.fleet.status import Roster, has_stream, leader_of, read_cards, read_roster
from ksearch_async.runs.feed import Batch, Feed, JournalFeed, StreamFeed
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.orders import Line, open_line
from ksearch_async.runs.run import Run
from ksearch_async.views.web.updates import Folding
from messages.base import KsearchError, ProtocolError

T = TypeVar("T")
_IMPOSSIBLE = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError, RecursionError)
"""Errors while folding well-formed records that no planner can have decided: the journal was edited."""
_to_json = msgspec.json.Encoder()


class OpenedRun:
    """One run's updates so far. Watchers read them by index, each at its own pace, without holding up each other."""

    def __init__(self, run_id: str, feed: Feed) -> None:
        self.run_id = run_id
        self.failure: KsearchError | None = None
        """Reason why no further updates come."""
        self.watchers = 0
        self.left_at = anyio.current_time()
        """Time at which the last watcher left, by the event loop's clock."""
        self.updates: list[bytes] = []
        """Updates as JSON."""
        self._feed = feed
        self._folding = Folding()
        self._lock = anyio.Lock()
        self._seqs = array("Q")
        self._current = anyio.Event()
        self._news = anyio.Event()

    async def follow(self) -> None:
        """Fold the records of the run's feed until cancelled, or until it fails: then `failure` has the reason."""
        try:
            async with aclosing(self._feed.batches()) as batches:
                async for batch in batches:
                    if batch.records:
                        async with self._lock:
                            await anyio.to_thread.run_sync(self._fold, batch)
                        self._tell()
                    if batch.is_current:
                        self._current.set()
        except KsearchError as error:
            self.failure = error
            self._current.set()
            self._tell()

    async def current(self) -> None:
        """Wait until everything is read that existed when the run was opened.

        Raises:
            messages.base.KsearchError: it cannot be read.
        """
        await self._current.wait()
        if self.failure is not None and not self.updates:
            raise self.failure

    async def news(self, index: int) -> None:
        """Wait until there is an update with this index, or no further ones come."""
        while index >= len(self.updates) and self.failure is None:
            await self._news.wait()

    @property
    def is_current(self) -> bool:
        """Return True if everything is read that existed when the run was opened, and nothing failed."""
        return self._current.is_set() and self.failure is None

    @property
    def last_seq(self) -> int:
        """Number of the latest record; 0: there is none."""
        return self._seqs[-1] if self._seqs else 0

    def index_after(self, seq: int) -> int:
        """Return the index of the first update after a record."""
        return bisect_right(self._seqs, seq)

    def seq_at(self, index: int) -> int:
        """Return the number of the record with an index."""
        return self._seqs[index]

    async def ask(self, question: Callable[[Run, str], T], name: str) -> T:
        """Return the answer to a question about a part of the run, which does not change meanwhile."""
        async with self._lock:
            return await anyio.to_thread.run_sync(question, self._folding.run, name)

    def row(self, found: Found, place: PlaceKind) -> Row:
        """Return the run's row of the list."""
        run, started = self._folding.run, self._folding.run.started
        if started is None:
            return unread_row(found, place)
        standing, mark = run.standing, run.step.mark if run.step else None
        return Row(
            run_id=found.run_id,
            task=started.task.name,
            language=started.description.language,
            device=started.target.device,
            standing=standing if standing == "finished" or found.is_led else "stopped",
            stopped_by=run.state.stopped_by or "",
            rounds=run.state.rounds,
            max_rounds=run.settings.budget.max_rounds,
            speedup=mark.speedup if mark else None,
            credit=mark.credit if mark else None,
            elapsed_s=run.place.seconds,
            cost_usd=run.state.cost_usd,
            started_at=run.started_at,
            scored=run.scored,
            place=place,
        )

    def _fold(self, batch: Batch) -> None:
        for record in batch.records:
            try:
                update = self._folding.take(record)
            except _IMPOSSIBLE as error:
                raise ProtocolError(f"record {record.seq} cannot follow on those before it: {error!r}") from error
            self._seqs.append(update.seq)
            self.updates.append(_to_json.encode(update))

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list."""

    run_id: str
    task: str = ""
    language: str = ""
    device: str = ""
    standing: str
    """`running`, `paused`, `stopping`, `finished`; `stopped`: no process works on it, and it has not ended; `unread`:
    not read yet; `damaged`: it cannot be read."""
    stopped_by: str = ""
    rounds: int = 0
    max_rounds: int = 0
    speedup: float | None = None
    """Speedup of the best; null: there is none, or candidates have scores."""
    credit: float | None = None
    """Lower bound of its interval, or the score."""
    elapsed_s: float = 0.0
    cost_usd: float = 0.0
    started_at: str
    """ISO 8601, UTC."""
    scored: bool = False
    place: PlaceKind
    error: str = ""
    """Reason why it cannot be read."""


def unread_row(found: Found, place: PlaceKind, *, error: str = "") -> Row:
    """Return the row of a run that was not read, or cannot be read."""
    standing = "damaged" if error else "unread"
    return Row(run_id=found.run_id, standing=standing, started_at=found.changed_at, place=place, error=error)


PlaceKind: TypeAlias = Literal["folder", "server"]
NOTHING: Mapping[str, str] = MappingProxyType({})
_LOCKS = Path("/proc/locks")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A run that exists."""

    run_id: str
    version: Hashable
    """Changes whenever the run has new records."""
    changed_at: str
    """Time of its last new record, ISO 8601, UTC."""
    is_led: bool
    """True if a process works on it."""


class Place(Protocol):
    """A place with runs: a folder, or a server."""

    kind: PlaceKind

    async def runs(self) -> list[Found]:
        """Return the runs that exist now.

        Raises: messages.base.KsearchError: they cannot be listed.
        """

    async def feed(self, run_id: str) -> Feed | None:
        """Return a run's records; None if there is no such run. The id comes from outside and is not trusted."""

    def line(self, run_id: str) -> AbstractAsyncContextManager[Line]:
        """Return a line to a run that `feed` has found, for orders; open while it is entered.

        Raises (when entered):
            ConfigError: it takes no orders.
            messages.base.BusError: its server cannot be reached.
        """

    async def roster(self) -> Roster | None:
        """Return the nodes that take part in the runs here; None if that is not known here.

        Raises:
            messages.base.BusError: they cannot be read.
        """


class FolderPlace:
    """Runs in the subfolders of a directory."""

    kind: PlaceKind = "folder"

    def __init__(
        self, runs_dir: Path, environment: Mapping[str, str] = NOTHING, *, credentials: Path | None = None
    ) -> None:
        self.runs_dir = runs_dir
        self._environment = environment
        self._credentials = credentials

    async def runs(self) -> list[Found]:
        """See `Place.runs`."""
        return await anyio.to_thread.run_sync(self._runs)

    async def feed(self, run_id: str) -> Feed | None:
        """See `Place.feed`."""
        folder = await anyio.to_thread.run_sync(self.folder, run_id)
        return JournalFeed(folder.journal) if folder is not None else None

    def line(self, run_id: str) -> AbstractAsyncContextManager[Line]:
        """See `Place.line`."""
        path = self.runs_dir.absolute() / run_id
        return open_line(str(path), None, self.runs_dir, self._environment, credentials=self._credentials)

    async def roster(self) -> Roster | None:
        """See `Place.roster`. Nodes announce themselves on servers only."""
        return None

    def folder(self, run_id: str) -> RunFolder | None:
        """Return the folder of a run, directly in the directory; None if there is none."""
        if not run_id or run_id in (".", "..") or "/" in run_id:
            return None
        folder = RunFolder(self.runs_dir / run_id)
        try:
            status = folder.journal.lstat()
        except (OSError, ValueError):  # it is not there, or that is no name for a file
            return None
        return folder if stat.S_ISREG(status.st_mode) else None

    def _runs(self) -> list[Found]:
        locked = _locked_files()
        return [found for found in (self._found(name, locked) for name in _names(self.runs_dir)) if found is not None]

    def _found(self, name: str, locked: frozenset[int] | None) -> Found | None:
        folder = self.folder(name)
        if folder is None:
            return None
        try:
            status = folder.journal.stat()
            is_led = status.st_ino in locked if locked is not None else folder.in_use()
        except OSError:  # it was removed between two looks
            return None
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        return Found(
            run_id=name,
            version=version,
            changed_at=datetime.fromtimestamp(status.st_mtime, UTC).isoformat(),
            is_led=is_led,
        )


class ServerPlace:
    """Runs on a NATS server."""

    kind: PlaceKind = "server"

    def __init__(
        self, bus: Bus, address: str, environment: Mapping[str, str] = NOTHING, *, credentials: Path | None = None
    ) -> None:
        self._bus = bus
        self._address = address
        self._environment = environment
        self._credentials = credentials

    async def runs(self) -> list[Found]:
        """See `Place.runs`."""
        return [
            Found(
                run_id=card.run_id,
                version=(card.state, card.rounds, card.updated_at),
                changed_at=card.updated_at,
                is_led=card.state != "finished" and bool(await leader_of(self._bus, card.run_id)),
            )
            for card in await read_cards(self._bus)
        ]

    async def feed(self, run_id: str) -> Feed | None:
        """See `Place.feed`."""
        return StreamFeed(self._bus, run_id) if await has_stream(self._bus, run_id) else None

    def line(self, run_id: str) -> AbstractAsyncContextManager[Line]:
        """See `Place.line`."""
        nowhere = Path()
        return open_line(run_id, self._address, nowhere, self._environment, credentials=self._credentials)

    async def roster(self) -> Roster | None:
        """See `Place.roster`."""
        return await read_roster(self._bus)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted
    except OSError:  # it is not there yet: the first run makes it
        return []


def _locked_files() -> frozenset[int] | None:
    """Return the inodes of locked files; None if the system does not tell.

    Trying to take a lock would tell, too, but a run that begins at that instant would then be refused its own. Devices
    are not compared: some file systems report another one here than in a file's status.
    """
    try:
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = set()
    for fields in (line.split() for line in lines):
        # "1: FLOCK ADVISORY WRITE 708 08:01:1234 0 EOF"
        if len(fields) > 5 and fields[1] == "FLOCK":
            found.add(int(fields[5].rpartition(":")[2]))
    return frozenset(found)


LOOK_S = 1.0
"""Seconds between looks for runs."""
IDLE_S = 600.0
"""Seconds after which a run without viewers is dropped."""
KEPT_RUNS, KEPT_UPDATES = 12, 16_000
"""Most runs without viewers that are kept, and most updates of all of them together: about 80 MB. The list reads all
runs; the newest are then available at once."""

log = structlog.get_logger(__name__)


class UnknownRunError(KsearchError):
    """There is no run of this name."""


class Shelf:
    """Runs of one or more places. `keep` must run meanwhile."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        idle_s: float = IDLE_S,
        kept_updates: int = KEPT_UPDATES,
        look_s: float = LOOK_S,
    ) -> None:
        """Begin with these places; if two have the same run, the first counts."""
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
        """Changes whenever the list of runs has changed."""

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
        """Folder of the runs."""
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
        """Return the nodes that take part in the runs; none where there is no server."""
        for place in self._places:
            if (roster := await place.roster()) is not None:
                return roster
        return Roster(at=datetime.now(UTC).isoformat(timespec="milliseconds"), nodes=(), runs=())

    async def change(self, version: int) -> None:
        """Wait until the list has changed."""
        while self.version == version:
            await self._changed.wait()

    @asynccontextmanager
    async def run(self, run_id: str) -> AsyncIterator[OpenedRun]:
        """Keep a run open while the context lasts, read up to its current state."""
        opened = await self._open(run_id)
        opened.watchers += 1
        try:
            await opened.current()
            yield opened
        finally:
            opened.watchers -= 1
            opened.left_at = anyio.current_time()

    async def place_of(self, run_id: str) -> Place:
        """Return the place of a run.

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
        """Drop the runs without viewers, those that were left first."""
        now, runs, updates = anyio.current_time(), 0, 0
        for opened in sorted(self._opened.values(), key=lambda each: each.left_at, reverse=True):
            if opened.failure is None and (opened.watchers or self._goes_on(opened.run_id)):
                continue
            runs, updates = runs + 1, updates + len(opened.updates)
            is_too_much = runs > KEPT_RUNS or updates > self._kept_updates
            if opened.failure is not None or now - opened.left_at > self._idle_s or is_too_much:
                self._drop(opened.run_id)

    def _goes_on(self, run_id: str) -> bool:
        """Return True if a process works on a run; the list would open it again at once."""
        return run_id in self._rows and self._rows[run_id][0].is_led

    def _drop(self, run_id: str) -> None:
        self._scopes.pop(run_id).cancel()
        del self._opened[run_id]

    async def _look(self) -> None:
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
        """Return the runs that exist; for a place that cannot be read, those found last."""
        found: dict[str, tuple[Found, Place]] = {}
        for place in self._places:
            try:
                there = await place.runs()
            except KsearchError as error:
                log.warning("runs cannot be listed", place=place.kind, error=str(error))
                there = [found for found, row in self._rows.values() if row.place == place.kind]
            for each in there:
                found.setdefault(each.run_id, (each, place))
        return found

    async def _bring_up(self, found: Found, place: Place) -> None:
        known, row = self._rows[found.run_id]
        opened = self._opened.get(found.run_id)
        if opened is not None and opened.is_current:
            fresh = opened.row(found, place.kind)
        elif known != found:
            fresh = await self._row(found, place)
        else:
            return
        self._rows[found.run_id] = (found, fresh)
        if fresh != row:
            self._tell()

    async def _row(self, found: Found, place: Place) -> Row:
        """Read a run that is not open. A finished run stays open while there is room."""
        try:
            async with self.run(found.run_id) as opened:
                if opened.failure is not None:
                    raise opened.failure
                row = opened.row(found, place.kind)
        except KsearchError as error:
            return unread_row(found, place.kind, error=str(error))
        is_idle = not found.is_led and not opened.watchers and self._opened.get(found.run_id) is opened
        updates = sum(len(each.updates) for each in self._opened.values())
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


KEEP_ALIVE_S = 15.0
"""Interval of keep-alive messages, so that proxies do not close the connection."""
PACE_S = 0.25
"""Minimum interval between two updates of the list of runs."""
_AT_ONCE = 256
_STILL_HERE = b": still here\n\n"


async def told_updates(opened: OpenedRun, after: int, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[bytes]:
    """Yield a run's updates after a record, then new ones.

    The last event is `reset` if the run has fewer records, so that it is not the one that the watcher knew, or
    `trouble` if it can no longer be read. The next visitor finds it opened again.
    """
    yield _STILL_HERE
    if after > opened.last_seq:
        yield _event(b"reset", msgspec.json.encode({"last_seq": opened.last_seq}))
        return
    index = opened.index_after(after)
    while True:
        block = opened.updates[index : index + _AT_ONCE]
        if block:
            yield b"".join(
                b"id: %d\n%s" % (opened.seq_at(place), _event(b"update", update))
                for place, update in enumerate(block, index)
            )
            index += len(block)
        elif opened.failure is not None:
            yield _event(b"trouble", msgspec.json.encode({"error": str(opened.failure)}))
            return
        else:
            with anyio.move_on_after(keep_alive_s) as waiting:
                await opened.news(index)
            if waiting.cancelled_caught:
                yield _STILL_HERE


async def told_runs(shelf: Shelf, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[bytes]:
    """Yield the list of runs, then again whenever it has changed."""
    while True:
        version = shelf.version
        yield _event(b"runs", msgspec.json.encode({"runs": shelf.rows()}))
        while version == shelf.version:
            with anyio.move_on_after(keep_alive_s) as waiting:
                await shelf.change(version)
            if waiting.cancelled_caught:
                yield _STILL_HERE
        await anyio.sleep(PACE_S)


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, data)
