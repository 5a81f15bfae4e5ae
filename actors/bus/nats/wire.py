"""The parts of JetStream's requests and answers that are used here. Fields that are not named are not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from messages.base import BusError

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
STREAM_EXISTS = 10058
CONSUMER_EXISTS = frozenset({10013, 10105, 10148})
WRONG_LAST_SEQUENCE = frozenset({10070, 10071, 10164})
TOO_MANY_MESSAGES = 10077
MESSAGE_TOO_LARGE = 10054
NO_MESSAGE = 10037
NO_ROOM = frozenset({10002, 10023, 10028, 10047, 10110})
"""Out of memory or of disk: the operator may make room."""
TRANSIENT = frozenset({10008, 10049, 10009, 10012, 10039, 10068, 10122, 10158, 10163}) | NO_ROOM
"""No leader, not loaded yet, no quorum, its folder not cleared yet, this message (or the one before it on its subject)
still being copied to the other servers, or no room just now."""


class Fault(msgspec.Struct, frozen=True):
    """Why JetStream refused."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class RefusedError(BusError):
    """JetStream said no, and why."""

    def __init__(self, text: str, fault: Fault, *, is_retry: bool) -> None:
        super().__init__(text)
        self.code = fault.err_code
        self.is_retry = is_retry
        """An earlier try had no answer and may have been carried out."""


class Stored(msgspec.Struct, frozen=True):
    """The answer to a message that a stream stores."""

    seq: int = 0
    duplicate: bool = False
    error: Fault | None = None


class Nothing(msgspec.Struct, frozen=True):
    """An answer that says no more than that it was done."""

    error: Fault | None = None
    purged: int = 0


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a stream is made."""

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
    allow_rollup_hdrs: bool = False
    allow_msg_ttl: bool = False
    metadata: Mapping[str, str] = {}


class StreamState(msgspec.Struct, frozen=True):
    """What a stream holds."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    first_ts: datetime | None = None
    last_ts: datetime | None = None
    bytes: int = 0
    subjects: Mapping[str, int] = {}


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as it is."""

    config: Mapping[str, object] = {}
    """All of it, also what is not known here: an update sends it back."""
    state: StreamState = StreamState()
    created: datetime | None = None
    error: Fault | None = None

    @property
    def is_haunted(self) -> bool:
        """Whether it holds what was there before it was made."""
        first, created = self.state.first_ts, self.created
        return bool(self.state.messages) and first is not None and created is not None and first < created

    @property
    def beginning(self) -> int:
        """The number that its first message got."""
        return msgspec.convert(self.config.get("first_seq", 0), int)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Which subjects it stores."""
        return msgspec.convert(self.config.get("subjects", ()), tuple[str, ...])

    @property
    def replicas(self) -> int:
        """How many copies there are."""
        return msgspec.convert(self.config.get("num_replicas", 1), int)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What was noted at it."""
        return msgspec.convert(self.config.get("metadata", {}), dict[str, str])


class Page(msgspec.Struct, frozen=True):
    """Names of streams."""

    streams: tuple[str, ...] | None = None
    total: int = 0
    error: Fault | None = None


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a consumer is made. Times are nanoseconds."""

    name: str
    durable_name: str = ""
    ack_policy: str
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    ack_wait: int = 0
    max_deliver: int = 0
    max_ack_pending: int = 0
    max_waiting: int = 0
    inactive_threshold: int = 0
    mem_storage: bool = False
    num_replicas: int = 0


class Delivered(msgspec.Struct, frozen=True):
    """How far a consumer got."""

    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer as it is."""

    delivered: Delivered = Delivered()
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    error: Fault | None = None


class Advisory(msgspec.Struct, frozen=True):
    """The server's word that a job was delivered too often."""

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int


class Receipt(msgspec.Struct, frozen=True):
    """What the subject says to which a delivered message is acknowledged."""

    stream: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    stored_ns: int


def receipt_of(reply_to: str) -> Receipt | None:
    """Parse that subject; None if it is none. Servers write it in two forms, the longer one with domain and account."""
    parts = reply_to.split(".")
    if len(parts) < 9 or parts[:2] != ["$JS", "ACK"]:
        return None
    skip = 0 if len(parts) == 9 else 2
    numbers = parts[4 + skip : 8 + skip]
    if not all(number.isdigit() for number in numbers):
        return None
    delivered, stream_seq, consumer_seq, stored_ns = map(int, numbers)
    return Receipt(parts[2 + skip], delivered, stream_seq, consumer_seq, stored_ns)


def proves_nothing(there: int, expected: int) -> bool:
    """Say whether what is there leaves open why a message was refused whose predecessor was to have a sequence.

    Then an earlier try of it is under way, its answer lost with a leader, or who was asked does not know the last yet.

    Args:
        there: sequence of the last message on its subject, as somebody of the cluster says; 0: there is none.
        expected: sequence that it was to have.
    """
    return there == expected or 0 < there < expected
