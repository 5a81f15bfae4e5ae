"""Experiment trackers: the interface that each implements, and its messages to the session's process.

Entries are computed once (`ledger`); a tracker only transmits them. Trackers may block and may fail: nothing else runs
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
"""Kind of an artifact with several versions under one name."""


class TrackerError(BoundaryError):
    """A tracker did not take an entry."""


@contextmanager
def as_tracker_errors(own: type[Exception]) -> Iterator[None]:
    """Raise errors of a tracker's package, and those that pass through it, as `TrackerError`."""
    try:
        yield
    except (own, OSError, ValueError, TypeError) as error:
        raise TrackerError(" ".join(str(error).split()) or type(error).__name__) from error


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers after a round. Entries of earlier rounds are kept."""

    round: int
    """Number of the round; 0: before the end of the first."""
    values: Mapping[str, Cell]
    """Values by name; null: the round has none."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """Files that form one artifact."""

    name: str
    kind: str
    round: int
    files: Mapping[str, str]
    """Path inside the artifact, which cannot leave it → text."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is sent when a session ends."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


Entry: TypeAlias = Figures | Artifact


class Tracker(Protocol):
    """Transmits one session of a run to an experiment tracker."""

    def begin(self, head: Head, parameters: Mapping[str, object]) -> str:
        """Begin, or continue under this run's id, and return the address at which the run can be seen, if any.

        May be called again after it failed.

        Raises:
            TrackerError: there is none, it does not answer, or it refuses the sign-in.
        """

    def take(self, entry: Entry) -> None:
        """Transmit an entry; entries come in order.

        Raises:
            TrackerError: it was not accepted.
        """

    def end(self, totals: Totals, tables: Sequence[Table]) -> None:
        """End the session, and return when everything has arrived.

        Raises:
            TrackerError: not everything did.
        """


def open_tracker(name: str, settings: TrackingSettings, folder: Path) -> Tracker:
    """Return a tracker with a folder of its own.

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
    """A message about a tracker for people."""

    kind: Literal["begun", "trouble", "failed", "ended"]
    text: str = ""
    """Address at which the run can be seen, or the error."""
    taken: int = 0
    dropped: int = 0
    """Number of entries that were given up after some tries."""


class Mark(msgspec.Struct, kw_only=True):
    """Progress of a tracker in a run: `tracking/NAME.json`."""

    seq: int = 0
    """Number of the last record that it received completely."""
    url: str = ""

    def keep(self, folder: RunFolder, name: str, seq: int) -> None:
        """Save its progress up to a record; the file is always complete."""
        self.seq = seq
        path = mark_path(folder, name)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(msgspec.json.encode(self) + b"\n")
        fresh.replace(path)


def mark_path(folder: RunFolder, name: str) -> Path:
    """Return the path of a tracker's progress; its other files are beside it."""
    return folder.path / "tracking" / f"{name}.json"


def read_mark(folder: RunFolder, name: str) -> Mark:
    """Return a tracker's progress; the beginning if it is unknown."""
    try:
        return msgspec.json.decode(mark_path(folder, name).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return Mark()
