"""What goes wrong when: a list that follows from a seed."""

from __future__ import annotations

import random
from typing import Literal, TypeAlias, get_args

import msgspec

Kind: TypeAlias = Literal[
    "kill planner",
    "kill coder",
    "kill builder",
    "kill evaluator",
    "kill server",
    "freeze planner",
    "freeze coder",
    "freeze evaluator",
    "freeze server",
    "stall link",
    "cut link",
    "full disk",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
GAP_S = 7.0
"""Between blows, on average."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long things last, in seconds: from, to."""

    down: tuple[float, float] = (0.2, 4.0)
    """Until something that was killed is started again."""
    frozen: tuple[float, float] = (1.0, 5.0)
    """Short enough to go unnoticed."""
    planner_frozen: tuple[float, float] = (11.0, 16.0)
    """Longer than the lease."""
    worker_frozen: tuple[float, float] = (31.0, 38.0)
    """Longer than the ack time-out: the job is done by somebody else meanwhile."""
    link: tuple[float, float] = (2.0, 20.0)
    disk: tuple[float, float] = (2.0, 6.0)


class Blow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong."""

    at_s: float
    """After the chaos began."""
    kind: Kind
    pick: float
    """From 0 to 1: which of those whom it may strike."""
    lasts_s: float


def schedule(
    seed: int, lasting_s: float, *, gap_s: float = GAP_S, kinds: tuple[Kind, ...] = KINDS, times: Times | None = None
) -> list[Blow]:
    """Return blows spread over a time, about one each `gap_s`; each kind comes once before any comes twice.

    Freezing is short and long in turns, beginning with long: what takes a whole time-out to heal had better be early.
    """
    draw, times = random.Random(seed), times or Times()
    rounds = max(1, round(lasting_s / gap_s / len(kinds)))
    order: list[Kind] = []
    for _ in range(rounds):
        order += draw.sample(kinds, len(kinds))
    step_s = lasting_s / len(order)
    long: dict[Kind, bool] = {}
    blows = []
    for number, kind in enumerate(order):
        long[kind] = not long.get(kind, False)
        span = _span(kind, times, is_long=long[kind])
        at_s = (number + draw.random()) * step_s
        blows.append(Blow(at_s=at_s, kind=kind, pick=draw.random(), lasts_s=draw.uniform(*span)))
    return blows


def _span(kind: Kind, times: Times, *, is_long: bool) -> tuple[float, float]:
    what, _, whom = kind.partition(" ")
    if what == "freeze" and is_long and whom != "server":
        return times.planner_frozen if whom == "planner" else times.worker_frozen
    return {"kill": times.down, "freeze": times.frozen, "full": times.disk}.get(what, times.link)
