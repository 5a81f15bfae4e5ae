"""The wire form is a promise to journals that exist and to hosts that run another release."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from messages import codec
from messages.codec import Body, CodecError, NewerVersionError, Record
from messages.commands import Command
from messages.edits import Edit, EditScript
from messages.events import Event
from messages.facts import Fact
from messages.verdicts import Verdict
from tests.messages import examples

FORMS: dict[str, Any] = json.loads(examples.GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_the_wire_form_is_as_it_was(name: str) -> None:
    assert examples.frozen_form(examples.EXAMPLES[name]) == FORMS[name], (
        "the wire form changed: give the struct a new version, or run tests/messages/examples.py if old readers cope"
    )


@pytest.mark.parametrize("name", FORMS)
def test_what_was_written_then_is_read_now(name: str) -> None:
    kind = type(examples.EXAMPLES[name])
    assert msgspec.msgpack.decode(bytes.fromhex(FORMS[name]["msgpack"]), type=kind) == examples.EXAMPLES[name]
    assert msgspec.json.decode(json.dumps(FORMS[name]["json"]), type=kind) == examples.EXAMPLES[name]


@pytest.mark.parametrize("union", [Body, Event, Command, Verdict, Edit, Fact], ids=str)
def test_everything_that_travels_has_an_example(union: object) -> None:
    assert {kind.__name__ for kind in get_args(union)} <= examples.EXAMPLES.keys()


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_an_example_leaves_no_field_at_its_default(name: str) -> None:
    example = examples.EXAMPLES[name]
    defaults = [
        field.name
        for field in msgspec.structs.fields(example)
        if field.default is not msgspec.NODEFAULT and getattr(example, field.name) == field.default
    ]
    assert set(defaults) <= {"complaint", "reference_dtype"}, "an example that leaves out a field freezes less"


def test_tags_are_dotted_versioned_and_known() -> None:
    tags = {str(kind.__struct_config__.tag) for kind in (*get_args(Body), *get_args(Command))}
    assert tags == codec.KNOWN_TAGS
    assert all(codec._VERSION.match(tag) for tag in tags)


@pytest.mark.parametrize("message", [*examples.EVENTS, examples.DECIDED, *examples.COMMANDS], ids=type)
def test_an_older_reader_ignores_what_a_newer_writer_adds(message: Any) -> None:
    fields = msgspec.msgpack.decode(codec.encode(message))
    newer = msgspec.msgpack.encode({"in_future": [1, {"a": None}], **fields})
    decode: Any = codec.decode_command if message in examples.COMMANDS else codec.decode_body
    assert decode(newer) == message


def test_a_record_with_a_field_of_the_future_is_read() -> None:
    line = codec.encode_line(examples.RECORD).replace(b'{"seq":4', b'{"trace":"x","seq":4')
    assert codec.decode_line(line) == examples.RECORD


@pytest.mark.parametrize("place", ["script", "insert", "split", "proposal"])
def test_a_script_may_not_say_what_the_machine_owns(place: str) -> None:
    script = json.loads(codec.to_json(examples.SCRIPT))
    insert, _, _, split = script["edits"]
    {"script": script, "insert": insert, "split": split, "proposal": split["into"][0]}[place]["state"] = "closed"
    with pytest.raises(CodecError, match="unknown field `state`"):
        codec.decode_script(json.dumps(script))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"priority": 1.5}, r"Expected `float` <= 1.0 - at `\$.edits\[0\].priority`"),
        ({"difficulty": 0}, r"Expected `int` >= 1 - at `\$.edits\[0\].difficulty`"),
        ({"title": ""}, r"Expected `str` of length >= 1 - at `\$.edits\[0\].title`"),
        ({"op": "delete"}, "Invalid value 'delete'"),
    ],
    ids=str,
)
def test_a_script_out_of_range_is_refused_with_the_place(change: dict[str, object], complaint: str) -> None:
    edit = {**json.loads(codec.to_json(examples.INSERT)), **change}
    with pytest.raises(CodecError, match=complaint):
        codec.decode_script(json.dumps({"edits": [edit]}))


def test_a_script_that_is_no_json_is_refused() -> None:
    with pytest.raises(CodecError, match="malformed"):
        codec.decode_script("Sure! {")


def test_an_unknown_version_in_a_journal_is_named_and_says_what_to_do() -> None:
    line = codec.encode_line(Record(seq=1, at="", msg_id="m", body=examples.EVENTS[7])).replace(b".v1", b".v2")
    with pytest.raises(CodecError) as caught:
        codec.decode_line(line)
    assert str(caught.value) == (
        "'clock.ticked.v2' is not known to this release: the journal was written by a newer ksearch; upgrade to read it"
    )


def test_a_known_tag_with_a_wrong_field_is_not_called_newer() -> None:
    line = b'{"seq":1,"at":"","msg_id":"m","body":{"type":"clock.ticked.v1","elapsed_s":"soon"}}\n'
    with pytest.raises(CodecError, match=r"Expected `float`, got `str` - at `\$.body.elapsed_s`"):
        codec.decode_line(line)


@pytest.mark.parametrize("decode", [codec.decode_body, codec.decode_command], ids=["body", "command"])
@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (msgspec.msgpack.encode({"type": "clock"}), "Invalid value 'clock'"),
        (msgspec.msgpack.encode(42), "Expected `object`, got `int`"),
        (b"\xc1", "MessagePack data is malformed"),
        (b"", "truncated"),
        (b"\x81\xa4type\xa1\xff", "utf-8"),
    ],
    ids=["unknown tag", "number", "junk", "nothing", "no text"],
)
def test_bytes_that_are_no_message_say_what_is_wrong(decode: Any, payload: bytes, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        decode(payload)


@pytest.mark.parametrize("message", [examples.EVENTS[2], examples.DECIDED, *examples.COMMANDS], ids=type)
def test_a_message_of_a_newer_version_is_told_from_one_that_is_broken(message: Any) -> None:
    fields = msgspec.msgpack.decode(codec.encode(message))
    newer = msgspec.msgpack.encode({**fields, "type": fields["type"].replace(".v1", ".v2"), "extra": 1})
    decode: Any = codec.decode_command if message in examples.COMMANDS else codec.decode_body
    with pytest.raises(NewerVersionError, match=r"'[a-z_.]+\.v2' is not known to this release"):
        decode(newer)
    broken = msgspec.msgpack.encode({"type": fields["type"]})
    with pytest.raises(CodecError) as refused:
        decode(broken)
    assert not isinstance(refused.value, NewerVersionError)


@pytest.mark.parametrize("line", [b"", b"42\n", b"[]\n", b"null\n", b'"\xff"\n', b"\0\0\n", b'{"seq":1}\n'], ids=repr)
def test_a_line_that_is_no_record_is_a_codec_error_whatever_it_is(line: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode_line(line)


def test_an_edit_script_of_the_wire_is_the_script_that_was_checked() -> None:
    assert codec.decode_script(codec.to_json(examples.SCRIPT).decode()) == examples.SCRIPT
    assert isinstance(examples.SCRIPT, EditScript)
