"""A run's events as programs get them: `ksearch run --json` prints them, `on_event` is called with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from messages.codec import Record
from messages.events import CandidateWritten
from messages.facts import Decided, RunFinished

LONG_TEXTS = frozenset({"prompt", "answer", "description", "candidate", "task", "log", "type"})
"""Fields that are left out: the journal has them."""


def events_of(record: Record) -> Iterator[dict[str, Any]]:
    """Yield a record's event, or each fact of its decision; the end of a run is told by whoever leads it.

    Each has `kind` (the message's tag without its version), `seq` (the record's place in the journal), `at` (UTC) and
    the message's fields, less long texts.
    """
    messages = record.body.facts if isinstance(record.body, Decided) else (record.body,)
    for message in messages:
        if isinstance(message, RunFinished):
            continue
        tag = str(message.__struct_config__.tag)
        fields = msgspec.to_builtins(message)
        shown = {key: value for key, value in fields.items() if key not in LONG_TEXTS}
        if isinstance(message, CandidateWritten) and message.candidate is not None:
            shown["candidate_id"] = message.candidate.candidate_id
        yield {"kind": tag.rsplit(".v", 1)[0], "seq": record.seq, "at": record.at, **shown}
