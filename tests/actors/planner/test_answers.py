"""Scripts as mid-sized models write them: what is meant is read, what the machine owns is refused."""

from __future__ import annotations

import json

import pytest

from actors.planner.answers import MAX_TITLE_CHARS, read_script
from messages.edits import Insert, Split, Update

INSERT = {"op": "insert", "parent": "n0", "title": "Fuse", "description": "D", "difficulty": 2, "priority": 0.5}
UPDATE = {"op": "update", "node": "n1", "priority": 0.5}
MEANT = Insert(parent="n0", title="Fuse", description="D", difficulty=2, priority=0.5)


def script(*edits: object, **fields: object) -> str:
    return json.dumps({"summary": "S", "edits": edits, **fields})


@pytest.mark.parametrize(
    ("edit", "note"),
    [
        ({**INSERT, "difficulty": 2.0}, ""),
        ({**INSERT, "difficulty": "2"}, "edits[0]: 'difficulty' was put right"),
        ({**INSERT, "priority": "0.5"}, "edits[0]: 'priority' was put right"),
        ({**INSERT, "merge": None, "key": None}, ""),
        ({**INSERT, "rationale": "because"}, "edits[0]: the field 'rationale' was left out"),
        ({**INSERT, "op": "Insert"}, ""),
    ],
)
def test_what_is_meant_without_a_doubt_is_read(edit: object, note: str) -> None:
    read = read_script(script(edit))
    assert read.script is not None, read.complaint
    assert (read.script.edits, read.unread) == ((MEANT,), ())
    assert note in "; ".join(read.notes)


def test_a_reason_on_an_update_and_fields_of_a_split_part_are_left_out_with_notes() -> None:
    part = {name: INSERT[name] for name in ("title", "description", "difficulty", "priority")}
    split = {"op": "split", "node": "n2", "into": [{**part, "why": "W"}, {**part, "expected_gain": "1.3x"}]}
    read = read_script(script({**UPDATE, "reason": "R"}, split))
    assert read.script is not None, read.complaint
    update, parts = read.script.edits
    assert update == Update(node="n1", priority=0.5)
    assert isinstance(parts, Split)
    assert parts.into[1].expected_gain == 1.3
    assert read.notes == (
        "edits[0]: the field 'reason' was left out",
        "edits[1].into[0]: the field 'why' was left out",
        "edits[1].into[1]: 'expected_gain' was put right",
    )


def test_a_long_title_is_shortened_at_a_word() -> None:
    read = read_script(script({**INSERT, "title": "Fuse the loops " * 9}))
    assert read.script is not None, read.complaint
    (insert,) = read.script.edits
    assert isinstance(insert, Insert)
    assert len(insert.title) <= MAX_TITLE_CHARS
    assert insert.title.endswith(("loops …", "the …", "Fuse …"))


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "S", "edits": [{"op": "update", "node": "n1", "priority": 0.5,},],}',
        '{"summary": "S", // as discussed\n "edits": [{"op": "update", /* n1 */ "node": "n1", "priority": 0.5}]}',
        '{"world_model": {"summary": "S", "edits": [{"op": "update", "node": "n1", "priority": 0.5}]}}',
    ],
)
def test_json_as_people_write_it_is_read(text: str) -> None:
    read = read_script(text)
    assert read.script is not None, read.complaint
    assert (read.script.summary, read.script.edits) == ("S", (Update(node="n1", priority=0.5),))
    assert len(read.notes) == 1


def test_a_line_break_and_what_looks_like_a_comment_stay_in_a_text() -> None:
    read = read_script('{"summary": "see http://a.b/c,\n}", "open_questions": "Why?", "edits": [],}')
    assert read.script is not None, read.complaint
    assert (read.script.summary, read.script.open_questions) == ("see http://a.b/c,\n}", ("Why?",))


@pytest.mark.parametrize("field", ["state", "best", "tries", "node_id", "id", "score", "children", "origin"])
def test_what_the_machine_owns_is_refused_and_the_other_edits_are_read(field: str) -> None:
    read = read_script(script({**INSERT, field: 1}, UPDATE))
    assert read.script is not None, read.complaint
    assert read.script.edits == (Update(node="n1", priority=0.5),)
    (refusal,) = read.unread
    assert (refusal.index, f"`{field}` - at `$.edits[0]`" in refusal.reason) == (0, True)
    assert "not yours to write" in refusal.reason
    assert read_script(script(UPDATE, **{field: 1})).script is None


@pytest.mark.parametrize(
    "edit",
    [
        {**INSERT, "difficulty": 9},
        {**INSERT, "difficulty": 2.5},
        {**INSERT, "priority": "high"},
        {**INSERT, "difficulty": True},
        {**INSERT, "parent": None},
        {**INSERT, "title": ""},
        {"op": "add"},
        "insert",
        None,
    ],
)
def test_what_leaves_a_doubt_is_refused(edit: object) -> None:
    read = read_script(script(UPDATE, edit))
    assert read.script is not None, read.complaint
    assert ([refusal.index for refusal in read.unread], len(read.script.edits)) == ([1], 1)
    alone = read_script(script(edit))
    assert (alone.script, "$.edits[0]" in alone.complaint) == (None, True)


def test_the_last_script_that_can_be_read_counts() -> None:
    draft, final, broken = script(INSERT), script(UPDATE), '{"edits": {"first": 1}}'
    for text in (f"{draft}\nNo:\n{final}", f"{draft} {final}\n{broken}"):
        read = read_script(text)
        assert read.script is not None
        assert read.script.edits == (Update(node="n1", priority=0.5),)


def test_depth_without_end_is_a_complaint() -> None:
    assert read_script('{"edits": ' + "[" * 50_000 + "]" * 50_000 + ",}").script is None
