"""Bytes and back: msgpack on the wire, JSON on disk. Encoders and decoders are made once.

On the wire unknown fields are tolerated (an older reader meets a newer writer); an unknown *tag* is an error.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec

from messages.base import Message
from messages.commands import BuildCandidate, Command, EvaluateCandidate, WriteCandidate
from messages.edits import EditScript
from messages.events import (
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    ClockTicked,
    EditsProposed,
    Event,
    JobLost,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import Decided

Body: TypeAlias = (
    RunStarted
    | RunResumed
    | CandidateWritten
    | CandidateBuilt
    | CandidateEvaluated
    | EditsProposed
    | JobLost
    | ClockTicked
    | StopRequested
    | Decided
)
"""Whatever a run's event stream holds: events of actors, and the planner's decisions."""


class Record(Message, frozen=True, kw_only=True):
    """One entry of a run's event stream."""

    seq: Annotated[int, msgspec.Meta(ge=1)]
    """Position in the stream, from 1, without gaps in the memory bus (JetStream may have gaps)."""
    at: str
    """When it was appended, ISO 8601, UTC."""
    msg_id: str
    """De-duplication key: the same id is stored once."""
    body: Body


_to_msgpack = msgspec.msgpack.Encoder(enc_hook=None)
_to_json = msgspec.json.Encoder(order="deterministic")
_body: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_record_json = msgspec.json.Decoder(Record)
_script = msgspec.json.Decoder(EditScript)
_any_json = msgspec.json.Decoder()
_VERSION = re.compile(r"^(?P<name>[a-z_.]+)\.v(?P<version>\d+)$")


class CodecError(ValueError):
    """Bytes that are no message of ours; the text says what is wrong with them."""


def encode(message: Event | Decided | Command) -> bytes:
    """Return the wire form."""
    return _to_msgpack.encode(message)


def decode_body(payload: bytes) -> Body:
    """Parse an event or a decision.

    Raises:
        CodecError: it is neither, or of a version that this release does not know.
    """
    try:
        return _body.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(str(error)) from error


def decode_command(payload: bytes) -> Command:
    """Parse a job.

    Raises:
        CodecError: it is no job, or of a version that this release does not know.
    """
    try:
        return _command.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(str(error)) from error


def encode_line(record: Record) -> bytes:
    """Return a record as one JSON line, newline included."""
    return _to_json.encode(record) + b"\n"


def decode_line(line: bytes) -> Record:
    """Parse a line of a journal.

    Raises:
        CodecError: it is no JSON, no record, or of a version that this release does not know.
    """
    try:
        return _record_json.decode(line)
    except msgspec.ValidationError as error:
        raise CodecError(_say_version(line) or str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(f"not a JSON record: {error}") from error


def decode_script(text: str) -> EditScript:
    """Parse a model's edit script; unknown fields are errors.

    Raises:
        CodecError: what is wrong, with the path of the offending value.
    """
    try:
        return _script.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CodecError(str(error)) from error


def to_json(value: object) -> bytes:
    """Return any struct or builtin as JSON with keys in a fixed order."""
    return _to_json.encode(value)


def _say_version(line: bytes) -> str:
    """Say that a line was written by a newer release, if that is what is wrong with it."""
    try:
        value = _any_json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    body = value.get("body") if isinstance(value, dict) else None
    tag = body.get("type") if isinstance(body, dict) else None
    match = _VERSION.match(tag) if isinstance(tag, str) else None
    if match is None or tag in KNOWN_TAGS:
        return ""
    return f"{tag!r} is not known to this release: the journal was written by a newer ksearch; upgrade to read it"


KNOWN_TAGS = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        RunStarted,
        RunResumed,
        CandidateWritten,
        CandidateBuilt,
        CandidateEvaluated,
        EditsProposed,
        JobLost,
        ClockTicked,
        StopRequested,
        Decided,
        WriteCandidate,
        BuildCandidate,
        EvaluateCandidate,
    )
)
