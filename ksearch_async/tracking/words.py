"""What a tracker's process and the session beside it say to each other, and what it leaves in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ksearch_async.runs import RunFolder


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that people should know of a tracker."""

    kind: Literal["begun", "trouble", "failed", "ended"]
    text: str = ""
    """Where the run can be seen; what went wrong."""
    taken: int = 0
    dropped: int = 0
    """Entries that were given up after some tries."""


class Mark(msgspec.Struct, kw_only=True):
    """How far a tracker was told of a run: `tracking/NAME.json`."""

    seq: int = 0
    """Of the last record of which it was told everything."""
    url: str = ""

    def keep(self, folder: RunFolder, name: str, seq: int) -> None:
        """Say that it was told up to a record; the file is always a whole one."""
        self.seq = seq
        path = mark_path(folder, name)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(msgspec.json.encode(self) + b"\n")
        fresh.replace(path)


def mark_path(folder: RunFolder, name: str) -> Path:
    """Return where it stands; what else a tracker needs lies beside it."""
    return folder.path / "tracking" / f"{name}.json"


def read_mark(folder: RunFolder, name: str) -> Mark:
    """Return how far a tracker was told; from the beginning if that is not known."""
    try:
        return msgspec.json.decode(mark_path(folder, name).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return Mark()
