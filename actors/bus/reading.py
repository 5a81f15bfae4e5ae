"""What the entries of an event stream say. Everybody who reads a stream reads it by this function, so all agree."""

from __future__ import annotations

import re

import structlog

from actors.bus.base import Posted
from messages.codec import Body, CodecError, decode_body, may_say, survives_json

_NO_NUMBER = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
"""Found in every msgpack text that holds a NaN or an infinity, and in few others."""

log = structlog.get_logger(__name__)


def body_of(posted: Posted) -> Body | None:
    """Return an entry's body; None if it is none of ours, or not its publisher's to say, or no journal can keep it.

    A bus that vouches for no role (`MemoryBus`) has checked everything before it was kept: there such an entry is an
    error.

    Raises:
        CodecError: the bus vouches for no role, and this cannot be read.
    """
    try:
        body = decode_body(posted.payload)
    except CodecError as error:
        if posted.role is None:
            raise
        log.warning(
            "event left out: it cannot be read",
            seq=posted.seq,
            message=posted.msg_id,
            publisher=posted.role,
            error=str(error),
        )
        return None
    fault = _fault(posted, body)
    if fault:
        log.warning(
            f"event left out: {fault}",
            seq=posted.seq,
            message=posted.msg_id,
            publisher=posted.role,
            event_type=type(body).__name__,
        )
        return None
    return body


def _fault(posted: Posted, body: Body) -> str:
    if posted.role is None:
        return ""
    if not may_say(posted.role, body):
        return "it is not its publisher's to say"
    if _NO_NUMBER.search(posted.payload) is not None and not survives_json(body):
        return "it holds a number that JSON does not have"
    return ""
