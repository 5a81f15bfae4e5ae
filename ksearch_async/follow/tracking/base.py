"""Experiment trackers: the interface that each implements, and its messages to the session's process.

Entries are worked out once (`ledger`); a tracker only carries them. Trackers may block and may fail: nothing else lives
in their process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from ksearch_async.follow.choices import MODULES
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Head, Totals
from ksearch_async.settings.run_config import TrackingSettings
from messages.base import BoundaryError

Cell: TypeAlias = float | int | str | bool | None

WORLD_MODEL = "world-model"
"""Kind of an artifact that comes again and again under one name; each is a version of it."""


class TrackerError(BoundaryError):
    """A tracker did not take an entry."""


@contextmanager
def as_tracker_errors(own: type[Exception]) -> Iterator[None]:
    """Raise errors of a tracker's package, and those that it lets through, as `TrackerError`."""
    try:
        yield
    except (own, OSError, ValueError, TypeError) as error:
        raise TrackerError(" ".join(str(error).split()) or type(error).__name__) from error


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers after a round. Entries of earlier rounds are kept."""

    round: int
    """0: before the first one was over."""
    values: Mapping[str, Cell]
    """Null: the round has none; a text stands for itself."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """Files that belong together."""

    name: str
    kind: str
    round: int
    files: Mapping[str, str]
    """Path inside it, which cannot leave it → text."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All that there is of something, told when a session ends."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


Entry: TypeAlias = Figures | Artifact


class Tracker(Protocol):
    """Carries one session of a run to where people look at experiments."""

    def begin(self, head: Head, parameters: Mapping[str, object]) -> str:
        """Begin, or go on with what was begun under this run's id, and return where it is to be seen, or nothing.

        May be called again after it failed.

        Raises:
            TrackerError: there is none, it does not answer, or it refuses the sign-in.
        """

    def take(self, entry: Entry) -> None:
        """Carry something; entries come in order.

        Raises:
            TrackerError: it was not taken.
        """

    def end(self, totals: Totals, tables: Sequence[Table]) -> None:
        """End the session, and return when all of it has arrived.

        Raises:
            TrackerError: not all of it did.
        """


def open_tracker(name: str, settings: TrackingSettings, folder: Path) -> Tracker:
    """Return a tracker that keeps what it needs in a folder of its own.

    Raises:
        TrackerError: its package is not installed.
    """
    try:
        tracked = import_module(MODULES[name]).Tracked
    except ImportError as error:
        raise TrackerError(f"{error}; pip install 'ksearch-async[{name}]' brings it") from error
    tracker: Tracker = tracked(settings, folder)
    return tracker


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that people should know of a tracker."""

    kind: Literal["begun", "trouble", "failed", "ended"]
    text: str = ""
    """Where the run can be seen; what went wrong."""
    taken: int = 0
    dropped: int = 0
    """Entries that were given up after some tries."""


class Mark(msgspec.Struct, kw_only=True):
    """Progress of a tracker in a run: `tracking/NAME.json`."""

    seq: int = 0
    """Of the last record that it received whole."""
    url: str = ""

    def keep(self, folder: RunFolder, name: str, seq: int) -> None:
        """Note its progress up to a record; the file is always a whole one."""
        self.seq = seq
        path = mark_path(folder, name)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(msgspec.json.encode(self) + b"\n")
        fresh.replace(path)


def mark_path(folder: RunFolder, name: str) -> Path:
    """Return where it stands; what else a tracker needs lies beside it."""
    return folder.path / "tracking" / f"{name}.json"


def read_mark(folder: RunFolder, name: str) -> Mark:
    """Return a tracker's progress; the beginning if it is unknown."""
    try:
        return msgspec.json.decode(mark_path(folder, name).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return Mark()
