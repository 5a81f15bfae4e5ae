"""Tests of a run's attempts as they are read from its journal."""

from __future__ import annotations

import msgspec
import pytest

from ksearch_async.runs.candidates import archive_of
from ksearch_async.runs.run import Run
from messages.codec import Record
from messages.facts import Decided, WriteRequested
from tests.ksearch_async.stories import FASTER_KERNEL, KERNEL, SLOPPY, decided, sequel


@pytest.mark.parametrize(
    ("base_id", "current_id", "expected"),
    [
        (None, None, None),
        (KERNEL.candidate_id, None, KERNEL.candidate_id),
        (KERNEL.candidate_id, SLOPPY.candidate_id, SLOPPY.candidate_id),
    ],
)
def test_an_attempt_tells_which_candidate_it_was_to_change(
    base_id: str | None, current_id: str | None, expected: str | None
) -> None:
    records = [_asked_with(record, base_id, current_id) for record in sequel()]
    (told,) = archive_of(Run.of(records, with_texts=True)).told("n2")
    assert (told.candidate_id, told.base_id) == (FASTER_KERNEL.candidate_id, expected)


def _asked_with(record: Record, base_id: str | None, current_id: str | None) -> Record:
    facts = record.body.facts if isinstance(record.body, Decided) else ()
    if not facts or not isinstance(facts[0], WriteRequested) or facts[0].branch_id != "b20":
        return record
    asked = msgspec.structs.replace(facts[0], base_id=base_id, current_id=current_id)
    return msgspec.structs.replace(record, body=decided(asked))
