"""Orders from the page: what may be asked for, and how it is answered. Given as commands give them (`ordering`)."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ksearch_async.runs.orders import Line, begun, give, steer
from messages.base import ConfigError
from messages.events import ContinueRequested, PauseRequested, StopRequested
from messages.steering import Audience, Boost, Forbid, Instruct, Pin, Release, Steering

OrderName: TypeAlias = Literal["pause", "continue", "stop", "tell", "pin", "boost", "forbid", "release"]
MAX_BODY_BYTES = 1 << 20
_BOOST = 0.2
"""As `ksearch boost` has it."""


class BadOrderError(ConfigError):
    """No order of ours."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a page sends."""

    order: OrderName
    node_id: str = ""
    """Of `pin`, `boost`, `forbid` and `release`."""
    text: str = ""
    """Of `tell`."""
    to: Audience = "both"
    by: float = _BOOST
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    done: bool
    said: str


_asked = msgspec.json.Decoder(Asked)


def read_asked(body: bytes) -> Asked:
    """Read an order.

    Raises:
        BadOrderError: it is none.
    """
    try:
        asked = _asked.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last one: nested too deeply
        raise BadOrderError(f"no order: {error}") from error
    if asked.order in ("pin", "boost", "forbid", "release") and not asked.node_id:
        raise BadOrderError(f"{asked.order}: no `node_id`")
    if asked.order == "tell" and not asked.text.strip():
        raise BadOrderError("tell: no `text`")
    return asked


async def carry_out(line: Line, asked: Asked) -> Outcome:
    """Give an order, and say what came of it; also where it is refused.

    Raises:
        messages.base.BusError: the run cannot be reached.
    """
    try:
        return await _course(line, asked) or await _given(line, asked)
    except ConfigError as error:
        return Outcome(done=False, said="; ".join((str(error), *getattr(error, "__notes__", ()))))


async def _course(line: Line, asked: Asked) -> Outcome | None:
    """Have a run stop, pause or go on; None if something else was asked for."""
    match asked.order:
        case "stop":
            answered = await steer(line, "stop", StopRequested(reason=asked.reason or "the dashboard"))
        case "pause":
            answered = await steer(line, "pause", PauseRequested(reason=asked.reason))
        case "continue":
            answered = await steer(line, "continue", ContinueRequested())
        case _:
            return None
    said = "; ".join(part for part in (answered.said, answered.failure, answered.hint) if part)
    return Outcome(done=answered.taken, said=said)


async def _given(line: Line, asked: Asked) -> Outcome:
    given = await give(line, await begun(line), _steering(asked))
    return Outcome(done=given.taken, said="; ".join((*given.words, *given.notes)))


def _steering(asked: Asked) -> Steering:
    match asked.order:
        case "pin":
            return Pin(node_id=asked.node_id)
        case "boost":
            return Boost(node_id=asked.node_id, by=asked.by)
        case "forbid":
            return Forbid(node_id=asked.node_id, reason=asked.reason)
        case "release":
            return Release(node_id=asked.node_id)
        case _:
            return Instruct(text=asked.text, to=asked.to)
