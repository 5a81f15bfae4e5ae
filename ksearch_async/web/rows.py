"""What the list of runs says of each."""

from __future__ import annotations

import msgspec

from ksearch_async.web.opened import OpenedRun
from ksearch_async.web.places import Found, PlaceKind


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list."""

    run_id: str
    task: str = ""
    language: str = ""
    device: str = ""
    standing: str
    """`running`, `paused`, `stopping`, `finished`; `stopped`: nobody works on it, and it has not ended; `unread`: not
    looked at yet; `damaged`: it cannot be read."""
    stopped_by: str = ""
    rounds: int = 0
    max_rounds: int = 0
    speedup: float | None = None
    """Of the best against the reference; null: there is none, or candidates have scores."""
    credit: float | None = None
    """Its interval's lower bound, or the score."""
    elapsed_s: float = 0.0
    cost_usd: float = 0.0
    started_at: str
    """ISO 8601, UTC."""
    scored: bool = False
    place: PlaceKind
    error: str = ""
    """Why it cannot be read."""


def row_of(found: Found, opened: OpenedRun, place: PlaceKind) -> Row:
    """Return what there is to say of a run."""
    head, totals, mark = opened.head, opened.totals, opened.mark
    if head is None:
        return unread_row(found, place)
    is_over = totals.standing == "finished"
    return Row(
        run_id=found.run_id,
        task=head.task,
        language=head.language,
        device=head.device,
        standing=totals.standing if is_over or found.is_led else "stopped",
        stopped_by=totals.stopped_by,
        rounds=totals.rounds,
        max_rounds=head.max_rounds,
        speedup=mark.speedup if mark else None,
        credit=mark.credit if mark else None,
        elapsed_s=totals.elapsed_s,
        cost_usd=totals.cost_usd,
        started_at=head.started_at,
        scored=head.scored,
        place=place,
    )


def unread_row(found: Found, place: PlaceKind, *, error: str = "") -> Row:
    """Return what is said of a run that was not read, or cannot be."""
    standing = "damaged" if error else "unread"
    return Row(run_id=found.run_id, standing=standing, started_at=found.changed_at, place=place, error=error)
