"""The lines of a search: whole where they are piped, fitted where a terminal has only so many columns."""

from __future__ import annotations

import msgspec
import pytest

from ksearch_async.chronicle import Chronicle
from ksearch_async.narrate import Narrator, fitted
from messages.codec import Record
from messages.facts import AttemptFinished, Decided, EditsApplied, NodeUpdated
from tests.ksearch_async.stories import RUN_ID, story

LONG = "fuse the passes over a row, share the rows among threads, and vectorise the loops over the columns of each"


def told(columns: int | None) -> list[str]:
    """Return the lines of the story, its action's title a long one."""
    chronicle = Chronicle()
    narrator = Narrator(chronicle, lambda: columns)
    return [line for record in _retitled(story()) for line in narrator.tell(record)]


def _retitled(records: list[Record]) -> list[Record]:
    retitling = EditsApplied(
        job_id=f"{RUN_ID}-p1", changes=(NodeUpdated(node_id="n1", title=LONG),), summary="because " * 30
    )
    body = records[2].body
    assert isinstance(body, Decided)
    facts = (*body.facts, retitling)
    return [*records[:2], msgspec.structs.replace(records[2], body=Decided(cause=1, facts=facts)), *records[3:]]


def test_piped_lines_hold_the_whole_title_and_the_whole_outcome() -> None:
    lines = told(None)
    assert f"2/2  {LONG}  measured: 2.00x the reference [1.90, 2.10], 50.0 us  (new best)" in lines
    assert f"1/2  {LONG}  wrong: 17 of 64 elements are wrong  (no best yet)" in lines


def test_at_80_columns_the_title_gives_way_and_the_numbers_stay() -> None:
    lines = told(80)
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("2/2  fuse the passes over") for line in lines)
    assert any("…  2.00x [1.90, 2.10], 50.0 us  (new best)" in line for line in lines)


@pytest.mark.parametrize("columns", [8, 20, 40, 60, 100, 127, 128, 140, 300])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert all(len(line) <= columns for line in told(columns))


def test_an_answer_without_a_program_is_told_once_where_the_next_says_the_same() -> None:
    records = story()
    nothing = AttemptFinished(
        branch_id="b2", candidate_id=None, fate="unusable", outcome="unusable: there is no further variant"
    )
    other = msgspec.structs.replace(nothing, outcome="unusable: the answer is empty")
    branch_ended = Decided(cause=7, facts=(nothing, nothing, other, nothing))
    chronicle = Chronicle()
    narrator = Narrator(chronicle)
    for record in records[:7]:
        list(narrator.tell(record))
    lines = list(narrator.tell(msgspec.structs.replace(records[6], body=branch_ended)))
    assert [line.partition("unusable: ")[2].partition("  (")[0] for line in lines] == [
        "there is no further variant",
        "the answer is empty",
        "there is no further variant",
    ]


def test_a_coder_that_sees_nothing_further_is_counted_and_not_told() -> None:
    records = story()
    nothing = AttemptFinished(branch_id="b2", candidate_id=None, fate="declined", outcome="declined: all was tried")
    chronicle = Chronicle()
    narrator = Narrator(chronicle)
    for record in records[:7]:
        list(narrator.tell(record))
    decided = msgspec.structs.replace(records[6], body=Decided(cause=7, facts=(nothing,)))
    assert list(narrator.tell(decided)) == []
    assert chronicle.fates["declined"] == 1


def test_a_line_that_is_cut_says_so_and_keeps_its_indent() -> None:
    assert fitted("  abcdef", 6) == "  abc…"
    assert fitted("  abc", 6) == "  abc"
