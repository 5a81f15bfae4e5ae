"""Bytes and back: msgpack on the wire, JSON on disk. Encoders and decoders are made once.

On the wire unknown fields are tolerated (an older reader meets a newer writer); an unknown *tag* is an error.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias, get_args

import msgspec

from messages.base import Message, Role
from messages.commands import Command
from messages.edits import EditScript
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, Event, JobLost
from messages.facts import Decided

Body: TypeAlias = Event | Decided
"""An entry of a run's event stream: an event of an actor, or a decision of the planner."""


class Record(Message, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a run's event stream."""

    seq: Annotated[int, msgspec.Meta(ge=1)]
    """Position in the stream, from 1, without gaps in the memory bus (JetStream may have gaps)."""
    at: str
    """When it was appended, ISO 8601, UTC."""
    msg_id: str
    """De-duplication key: the same id is stored once."""
    body: Body
    after: int | None = None
    """In a file: the record before it, 0 for none, if that is not `seq` - 1, since no record of ours lies between."""


_to_msgpack = msgspec.msgpack.Encoder()
_to_json = msgspec.json.Encoder(order="deterministic")
_body: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_record_json = msgspec.json.Decoder(Record)
_body_json: msgspec.json.Decoder[Body] = msgspec.json.Decoder(Body)
_script = msgspec.json.Decoder(EditScript)
_any_json = msgspec.json.Decoder()
_any_msgpack = msgspec.msgpack.Decoder()
_VERSION = re.compile(r"^(?P<name>[a-z_.]+)\.v(?P<version>\d+)$")


class CodecError(ValueError):
    """The bytes are not a message of ours; the text names the error."""


class NewerVersionError(CodecError):
    """The message is of a newer release. Nothing is wrong with it."""


def encode(message: Event | Decided | Command) -> bytes:
    """Return the wire form."""
    return _to_msgpack.encode(message)


def decode_body(payload: bytes) -> Body:
    """Parse an event or a decision.

    Raises:
        NewerVersionError: it is of a version that this release does not know.
        CodecError: it is neither.
    """
    try:
        return _body.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(payload, error) from error


def may_say(role: Role, body: Body) -> bool:
    """Return True if this role may publish this body: workers may only answer jobs of their kind."""
    match body:
        case CandidateWritten():
            return role in ("coder", "planner")  # the planner says so of candidates that a person gave
        case CandidateBuilt():
            return role == "builder"
        case CandidateEvaluated():
            return role == "evaluator"
        case JobLost():
            return role == "planner" or _LOSERS.get(body.kind) == role
        case _:
            return role == "planner"


_LOSERS: dict[str, Role] = {"write": "coder", "build": "builder", "evaluate": "evaluator"}


def decode_command(payload: bytes) -> Command:
    """Parse a job.

    Raises:
        NewerVersionError: it is of a version that this release does not know.
        CodecError: it is not a job.
    """
    try:
        return _command.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(payload, error) from error


def encode_line(record: Record) -> bytes:
    """Return a record as one JSON line, newline included."""
    return _to_json.encode(record) + b"\n"


def decode_line(line: bytes) -> Record:
    """Parse a line of a journal.

    Raises:
        CodecError: it is not JSON, not a record, or of a version that this release does not know.
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
        CodecError: names the error, with the path of the value.
    """
    try:
        return _script.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CodecError(str(error)) from error


def survives_json(body: Body) -> bool:
    """Return True if the body is the same after JSON, which turns NaN and infinities into null."""
    try:
        return _body_json.decode(_to_json.encode(body)) == body
    except msgspec.DecodeError:
        return False


def to_json(value: object) -> bytes:
    """Return any struct or builtin as JSON with keys in a fixed order."""
    return _to_json.encode(value)


def _say_version(line: bytes) -> str:
    try:
        value = _any_json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    tag = _newer_tag(value.get("body")) if isinstance(value, dict) else None
    if tag is None:
        return ""
    return f"{tag!r} is not known to this release: the journal was written by a newer ksearch; upgrade to read it"


def _refusal(payload: bytes, error: Exception) -> CodecError:
    try:
        tag = _newer_tag(_any_msgpack.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last one: nested too deeply
        tag = None
    if tag is None:
        return CodecError(str(error))
    return NewerVersionError(f"{tag!r} is not known to this release: a newer ksearch wrote it; upgrade to read it")


def _newer_tag(message: object) -> str | None:
    tag = message.get("type") if isinstance(message, dict) else None
    if isinstance(tag, str) and _VERSION.match(tag) is not None and tag not in KNOWN_TAGS:
        return tag
    return None


KNOWN_TAGS = frozenset(str(kind.__struct_config__.tag) for kind in (*get_args(Body), *get_args(Command)))
