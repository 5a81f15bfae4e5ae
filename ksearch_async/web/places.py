"""Where runs are: in the folders of a directory, or on a server. Both say which there are, and give each one's feed."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

import anyio.to_thread
import msgspec

from actors.bus.base import Bus
from ksearch_async.feed.reading import Feed, JournalFeed, StreamFeed
from ksearch_async.lines import Line, open_line
from ksearch_async.roster import Roster, read_roster
from ksearch_async.runs import RunFolder
from ksearch_async.watching import has_stream, leader_of, read_cards

PlaceKind: TypeAlias = Literal["folder", "server"]
NOTHING: Mapping[str, str] = MappingProxyType({})
_LOCKS = Path("/proc/locks")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is there."""

    run_id: str
    version: Hashable
    """Another one whenever the run has gone on."""
    changed_at: str
    """ISO 8601, UTC: when it was last seen to go on."""
    is_led: bool
    """Somebody works on it."""


class Place(Protocol):
    """Holds runs."""

    kind: PlaceKind

    async def runs(self) -> list[Found]:
        """Return the runs that are there now.

        Raises:
            messages.errors.KsearchError: that cannot be told.
        """

    async def feed(self, run_id: str) -> Feed | None:
        """Return a run's records; None if there is no such run. The id may come from anybody."""

    def line(self, run_id: str) -> AbstractAsyncContextManager[Line]:
        """Return the way to give a run orders, which `feed` has found; open while it is entered.

        Raises (when entered):
            ConfigError: it takes none.
            messages.errors.BusError: its server cannot be reached.
        """

    async def roster(self) -> Roster | None:
        """Return who takes part in the runs here; None if that is not known here.

        Raises:
            messages.errors.BusError: it cannot be read.
        """


class FolderPlace:
    """Runs in the folders of a directory."""

    kind: PlaceKind = "folder"

    def __init__(
        self, runs_dir: Path, environment: Mapping[str, str] = NOTHING, *, credentials: Path | None = None
    ) -> None:
        """Say which directory.

        Args:
            runs_dir: holds the runs' folders.
            environment: may say who signs in at a run's server.
            credentials: file that says so.
        """
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
        """See `Place.roster`. Processes show themselves on servers only."""
        return None

    def folder(self, run_id: str) -> RunFolder | None:
        """Return the folder of a run, which lies in the directory itself; None if there is none."""
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
        return Found(run_id=name, version=version, changed_at=_stamp(status.st_mtime), is_led=is_led)


class ServerPlace:
    """Runs on a NATS server."""

    kind: PlaceKind = "server"

    def __init__(
        self, bus: Bus, address: str, environment: Mapping[str, str] = NOTHING, *, credentials: Path | None = None
    ) -> None:
        """Say which server.

        Args:
            bus: a connection that reads.
            address: of the server: orders are given over connections of their own, which may be allowed more.
            environment: may say who signs in there.
            credentials: file that says so.
        """
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
    """Return the inodes of the files that are locked; None where the system does not tell.

    Asking for a lock would tell, too; but a run that begins at that instant would be refused its own. Devices are not
    compared: some file systems give another one here than in a file's status.
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


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
