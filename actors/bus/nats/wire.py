"""The fields of JetStream requests and replies that this package uses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from messages.base import BusError

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
STREAM_EXISTS = 10058
WRONG_LAST_SEQUENCE = frozenset({10070, 10071, 10164})
TOO_MANY_MESSAGES = 10077
MESSAGE_TOO_LARGE = 10054
NO_ROOM = frozenset({10002, 10023, 10028, 10047, 10110})
"""Codes: out of memory or disk; the operator may free space."""
TRANSIENT = frozenset({10008, 10049, 10009, 10012, 10039, 10068, 10122, 10158, 10163}) | NO_ROOM
"""Transient errors: no leader, not loaded yet, no quorum, folder not cleared yet, message not yet on all servers, or no
room."""


class Fault(msgspec.Struct, frozen=True):
    """Reason for a refusal."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class RefusedError(BusError):
    """JetStream's refusal."""

    def __init__(self, text: str, fault: Fault, *, is_retry: bool) -> None:
        super().__init__(text)
        self.code = fault.err_code
        self.is_retry = is_retry
        """True if an earlier try got no reply and may have been executed."""


class Stored(msgspec.Struct, frozen=True):
    """Reply to a message published to a stream."""

    seq: int = 0
    duplicate: bool = False
    error: Fault | None = None


class Nothing(msgspec.Struct, frozen=True):
    """A reply without content."""

    error: Fault | None = None


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Configuration of a stream."""

    name: str
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    storage: str = "file"
    discard: str = "old"
    num_replicas: int = 0
    max_msgs: int = -1
    max_msgs_per_subject: int = 0
    max_msg_size: int = -1
    duplicate_window: int = 0
    first_seq: int = 0
    allow_direct: bool = False
    allow_msg_ttl: bool = False
    metadata: Mapping[str, str] = {}


class StreamState(msgspec.Struct, frozen=True):
    """Contents of a stream."""

    messages: int = 0
    last_seq: int = 0
    first_ts: datetime | None = None
    last_ts: datetime | None = None
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    """Status of a stream."""

    config: Mapping[str, object] = {}
    """Complete, with unknown fields: an update sends it back."""
    state: StreamState = StreamState()
    created: datetime | None = None
    error: Fault | None = None

    @property
    def is_haunted(self) -> bool:
        """True if the stream holds messages older than itself."""
        first, created = self.state.first_ts, self.created
        return bool(self.state.messages) and first is not None and created is not None and first < created

    @property
    def beginning(self) -> int:
        """Configured first sequence number."""
        return msgspec.convert(self.config.get("first_seq", 0), int)

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return msgspec.convert(self.config.get("num_replicas", 1), int)

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata set by us."""
        return msgspec.convert(self.config.get("metadata", {}), dict[str, str])


class Page(msgspec.Struct, frozen=True):
    """Names of streams."""

    streams: tuple[str, ...] | None = None
    total: int = 0
    error: Fault | None = None


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Configuration of a consumer. Times are nanoseconds."""

    name: str
    durable_name: str
    ack_policy: str
    ack_wait: int
    max_ack_pending: int
    max_waiting: int


class ConsumerInfo(msgspec.Struct, frozen=True):
    """Status of a consumer."""

    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_pending: int = 0
    error: Fault | None = None


class Receipt(msgspec.Struct, frozen=True):
    """Contents of a delivered message's acknowledgement subject."""

    stream: str
    delivered: int
    stream_seq: int


def receipt_of(reply_to: str) -> Receipt | None:
    """Parse an acknowledgement subject; None if invalid. It has two forms, the longer with domain and account."""
    parts = reply_to.split(".")
    if len(parts) < 9 or parts[:2] != ["$JS", "ACK"]:
        return None
    if len(parts) > 9:
        del parts[2:4]
    delivered, stream_seq = parts[4:6]
    return Receipt(parts[2], int(delivered), int(stream_seq)) if delivered.isdigit() and stream_seq.isdigit() else None


def proves_nothing(there: int, expected: int) -> bool:
    """Return True if a wrong-last-sequence refusal does not tell whether an earlier try was stored.

    `there` is the subject's last sequence as reported by the server (0: none), `expected` the required one. An earlier
    try may be in flight, or the server may lag behind.
    """
    return there == expected or 0 < there < expected
