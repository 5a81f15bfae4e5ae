"""Who is there and which runs there are, as their entries on the bus say: what `ksearch nodes` shows."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from actors.bus.base import Bus
from messages.base import Role
from messages.presence import NODES, RUNS, Presence, RunCard, decode_card, decode_presence, takes_jobs_of

SHOWN_S = 24 * 3600.0
"""How long a run is listed that is finished."""
_ORDER: tuple[Role, ...] = ("planner", "coder", "builder", "evaluator")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A process that takes part, or did until a few minutes ago."""

    presence: Presence
    age_s: float
    """Since it last said that it is there."""

    @property
    def has_ended(self) -> bool:
        """Say whether it has said that it goes."""
        return self.presence.state == "left"

    @property
    def is_unfit(self) -> bool:
        """Say whether it takes no jobs because it cannot do them, or left for that reason."""
        return self.presence.state == "unfit" or (self.has_ended and bool(self.presence.detail))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and who is missing for it."""

    card: RunCard
    age_s: float
    """Since its planner last said something of it."""
    missing: tuple[Role, ...]
    """Workers that it needs and that are not there; none for a run that is finished."""


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """Everybody, and every run."""

    at: str
    """ISO 8601, UTC."""
    nodes: tuple[Node, ...]
    """By role, then by name."""
    runs: tuple[Run, ...]
    """The newest first."""
    unreadable: tuple[str, ...] = ()
    """Keys of entries that this release cannot read."""


async def read_roster(bus: Bus) -> Roster:
    """Read who is there.

    Raises:
        messages.errors.BusError: the bus cannot be read.
    """
    now = datetime.now(UTC)
    presences, unreadable = [], []
    for key, entry in (await bus.entries(NODES)).items():
        presence = decode_presence(entry.value)
        if presence is None:
            unreadable.append(key)
        else:
            presences.append(presence)
    cards = []
    for key, entry in (await bus.entries(RUNS)).items():
        card = decode_card(entry.value)
        if card is None:
            unreadable.append(key)
        elif card.state != "finished" or _age_s(card.updated_at, now) < SHOWN_S:
            cards.append(card)
    presences.sort(key=lambda each: (_ORDER.index(each.role), each.name))
    cards.sort(key=lambda each: each.submitted_at, reverse=True)
    return Roster(
        at=now.isoformat(timespec="milliseconds"),
        nodes=tuple(Node(presence=each, age_s=_age_s(each.seen_at, now)) for each in presences),
        runs=tuple(
            Run(card=each, age_s=_age_s(each.updated_at, now), missing=_missing(each, presences)) for each in cards
        ),
        unreadable=tuple(sorted(unreadable)),
    )


def _missing(card: RunCard, presences: list[Presence]) -> tuple[Role, ...]:
    if card.state == "finished":
        return ()
    there = {each.role for each in presences if each.state in ("proving", "ready") and takes_jobs_of(each, card)}
    return tuple(role for role in ("coder", "builder", "evaluator") if role not in there)


def _age_s(at: str, now: datetime) -> float:
    """Return how long ago that was; clocks of different hosts differ, so a time to come is now."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (now - moment).total_seconds())
