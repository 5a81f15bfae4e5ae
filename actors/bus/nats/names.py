"""Options of a NATS client, and the names of streams, subjects, consumers and headers.

ks.evt.<run>.<role>.<token>   an event; the token is its id with `_` for `.`       stream KS_EVT_<run>
ks.evt.<run>.decision         a planner's decision, fenced by the subject's last sequence number
ks.job.<kind>.<class>.<language>.<run>.<token>   a job       stream KS_JOB_<kind>_<class>_<language>_<run>
ks.dead.<run>.<kind>.<token>  a dead letter                  stream KS_DEAD_<run>
ks.blob.<run>.<sha256>.<i>    a part of a blob               stream KS_BLOB_<run>
ks.bell.<kind>                rung (core message, may be lost) when a job of this kind is submitted
$KV.ks.<key>                  an entry                       stream KV_ks
"""

from __future__ import annotations

import re
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from messages.base import BusError, Role
from messages.subjects import checked_id


class NatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Connection options. The `repr` shows neither password nor seed."""

    servers: tuple[str, ...]
    """`nats://host:port` or `tls://host:port`, without credentials."""
    name: str = "ksearch"
    """This client's name in the server's monitoring."""
    role: str = "admin"
    """Client role. Replies arrive under `_INBOX_<role>`, so no role can read another's."""
    user: str | None = None
    password: str | None = None
    nkey_seed: str | None = None
    ca: Path | None = None
    """CA certificates (PEM) for the server; None: the system's, if the URL uses `tls`."""
    cert: Path | None = None
    """The client's own certificate (PEM), if the server asks for one."""
    key: Path | None = None
    tls_first: bool = False
    """Start TLS before the server's first message (`handshake_first`)."""
    replicas: int | None = None
    """Replicas of each stream; None: same as the bucket."""
    connect_s: float = 5.0
    """Time limit of the first connection."""
    patience_s: float = 60.0
    """Time limit for a call to an unresponsive server; then it raises `BusError`."""
    ping_s: float = 3.0
    """Ping interval; a link silent for three times this long counts as dead."""

    def __repr__(self) -> str:
        return f"NatsOptions(servers={self.servers!r}, name={self.name!r}, role={self.role!r}, user={self.user!r})"


def tls_context(options: NatsOptions) -> ssl.SSLContext | None:
    """Return the TLS context, or None for a plain connection. Raises `BusError` for unreadable certificates."""
    wanted = options.ca is not None or options.tls_first or any(url.startswith("tls://") for url in options.servers)
    if not wanted:
        return None
    try:
        context = ssl.create_default_context(cafile=None if options.ca is None else str(options.ca))
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
    except OSError as error:
        given = ", ".join(repr(str(path)) for path in (options.ca, options.cert, options.key) if path is not None)
        raise BusError(f"cannot use the certificates {given}: {error}") from error
    return context


BUCKET: Final = "KV_ks"
ENTRIES: Final = "$KV.ks."
JOBS: Final = "KS_JOB_"
EVENTS: Final = "KS_EVT_"

QUEUE_NAME: Final = re.compile(r"ks\.job\.[-a-z0-9]+\.[-a-z0-9]+\.[-a-z0-9]+\.[-a-z0-9]+")

ID: Final = "Ks-Id"
BLOB: Final = "Ks-Blob"
"""Header with the digest of the blob that contains a payload too large for a message."""
SIZE: Final = "Ks-Size"
QUEUE: Final = "Ks-Queue"
DELIVERIES: Final = "Ks-Deliveries"
REASON: Final = "Ks-Reason"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
OPERATION: Final = "KV-Operation"

_MESSAGE_ID = re.compile(r"[-A-Za-z0-9]+(\.[-A-Za-z0-9]+)*")


def token_of(msg_id: str) -> str:
    """Return the id as a subject token. Raises `BusError` if the id has invalid characters."""
    if _MESSAGE_ID.fullmatch(msg_id) is None:
        raise BusError(f"{msg_id!r} is no message id: use letters, digits, dashes, and dots between them")
    return msg_id.replace(".", "_")


def id_of(token: str) -> str:
    """Return the id of a token."""
    return token.replace("_", ".")


def named(token: str, said: str) -> str:
    """Return a message's own id if it matches its subject's last token, else the token's: senders are untrusted."""
    return said if _MESSAGE_ID.fullmatch(said) is not None and token_of(said) == token else id_of(token)


def is_id(text: str) -> bool:
    """Return True if the text is a valid message id."""
    return _MESSAGE_ID.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def event_stream(run_id: str) -> str:
    """Name the stream of a run's events."""
    return f"{EVENTS}{checked_id(run_id)}"


def event_subject(run_id: str, role: Role, msg_id: str) -> str:
    """Name the subject of one event."""
    return f"ks.evt.{checked_id(run_id)}.{role}.{token_of(msg_id)}"


def decision_subject(run_id: str) -> str:
    """Name the subject of a run's decisions."""
    return f"ks.evt.{checked_id(run_id)}.decision"


@lru_cache(maxsize=4096)
def job_stream(queue: str) -> str:
    """Name the stream of a queue. Raises `BusError` if it is none of our queues."""
    if QUEUE_NAME.fullmatch(queue) is None:
        raise BusError(f"{queue!r} is no queue: ks.job.<kind>.<class>.<language>.<run>")
    return JOBS + queue.removeprefix("ks.job.").replace(".", "_")


def queue_of(stream: str) -> str:
    """Return the queue that a stream holds."""
    return "ks.job." + stream.removeprefix(JOBS).replace("_", ".")


def kind_of(queue: str) -> str:
    """Return `write`, `build` or `evaluate`; also the name of the queue's consumer."""
    return queue.split(".", 3)[2]


def jobs_of(run_id: str) -> str:
    """Return the subject filter of a run's jobs."""
    return f"ks.job.*.*.*.{checked_id(run_id)}.*"


def bell(kind: str) -> str:
    """Name the subject on which submissions of this kind are announced."""
    return f"ks.bell.{kind}"


def dead_stream(run_id: str) -> str:
    """Name the stream of a run's dead letters."""
    return f"KS_DEAD_{checked_id(run_id)}"


def dead_letter(run_id: str, kind: str, msg_id: str) -> str:
    """Name the subject of one dead letter."""
    return f"ks.dead.{checked_id(run_id)}.{kind}.{token_of(msg_id)}"


def blob_stream(run_id: str) -> str:
    """Name the stream of a run's blobs."""
    return f"KS_BLOB_{checked_id(run_id)}"


def blob_part(run_id: str, digest: str, number: int) -> str:
    """Name the subject of one part."""
    return f"ks.blob.{checked_id(run_id)}.{digest}.{number}"


def tombstone(run_id: str) -> str:
    """Name the entry of a cancelled run."""
    return f"cancel.{checked_id(run_id)}"
