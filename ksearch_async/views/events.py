"""A run's events for programs: `ksearch run --json` prints them, `on_event` is called with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from messages.codec import Record
from messages.events import CandidateWritten, Event, RunStarted
from messages.facts import Decided, Fact, RunFinished
from messages.steering import Inject, SteeringRequested

LONG_TEXTS = frozenset(
    {"prompt", "prompt_quotes", "answer", "answer_quotes", "description", "candidate", "task", "log", "type"}
)
"""Fields that are left out because the journal has them."""


def events_of(record: Record) -> Iterator[dict[str, Any]]:
    """Yield a record's event, or each fact of its decision; the leader reports the end of a run.

    Each has `kind` (the message's tag without its version), `seq` (the record's place in the journal), `at` (UTC) and
    the message's fields without long texts.
    """
    messages = record.body.facts if isinstance(record.body, Decided) else (record.body,)
    for message in messages:
        if isinstance(message, RunFinished):
            continue
        shown = public_form(message)
        yield {"kind": shown.pop("kind"), "seq": record.seq, "at": record.at, **shown}


def public_form(message: Event | Fact) -> dict[str, Any]:
    """Return an event or a fact for programs: `kind`, and its fields without long texts.

    The message's own field `kind` is called `job_kind` there.
    """
    tag = str(message.__struct_config__.tag)
    fields = msgspec.to_builtins(message)
    shown = {key: value for key, value in fields.items() if key not in LONG_TEXTS}
    if isinstance(message, CandidateWritten) and message.candidate is not None:
        shown["candidate_id"] = message.candidate.candidate_id
    elif isinstance(message, SteeringRequested):
        shown["order"] = _without_texts(message)
    elif isinstance(message, RunStarted):
        del shown["solution"], shown["heritage"]
    if "kind" in shown:
        shown["job_kind"] = shown.pop("kind")
    return {"kind": tag.rsplit(".v", 1)[0], **shown}


def _without_texts(asked: SteeringRequested) -> dict[str, Any]:
    order: dict[str, Any] = msgspec.to_builtins(asked.order)
    if isinstance(asked.order, Inject):
        order["candidate_id"] = asked.order.candidate.candidate_id
        del order["candidate"], order["description"]
    return order
