"""What one frame of the live view is drawn from, and how its lines are put together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from rich.text import Text

from actors.planner.core.state import SearchState
from ksearch_async.phrases import rough_duration
from ksearch_async.progress import Progress, Work

LABEL_WIDTH = 8
Part: TypeAlias = tuple[str, str, int]
"""Text, style and rank: parts of a higher rank are left out first."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is now, and the room that there is to show it."""

    progress: Progress
    now: datetime
    width: int
    """Columns that a line may take."""
    in_flight: dict[str, list[Work]]
    is_wide: bool = False
    """There is room for more than the least of each thing."""

    @property
    def state(self) -> SearchState:
        """The search."""
        return self.progress.chronicle.state

    @property
    def room(self) -> int:
        """Columns beside a label."""
        return self.width - LABEL_WIDTH


def labelled(label: str, *parts: str | tuple[str, str] | Text) -> Text:
    """Return a line that begins with what it is about."""
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), *parts)


def fitting(parts: Sequence[Part], room: int) -> list[tuple[str, str]]:
    """Return the parts that fit into so many columns, in their order; those of rank 0 always."""
    kept = [part for part in parts if part[0]]
    while sum(len(part[0]) for part in kept) > room and (most := max((part[2] for part in kept), default=0)) > 0:
        kept.remove(next(part for part in reversed(kept) if part[2] == most))
    return [(text, style) for text, style, _ in kept]


def work_words(work: Work) -> str:
    """Say what is being done and since when: `evaluating 12 s`."""
    return work.verb if work.since_s is None else f"{work.verb} {rough_duration(work.since_s)}"
