from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from actors.llm.features import answer_schema, strict_schema
from actors.llm.offline.answers import plan_answer
from actors.planner.answers import parse_script
from actors.planner.prompts import plan_request
from messages.codec import decode_script
from messages.edits import EditScript, Insert, Proposal, Prune, Split, Update
from messages.facts import PlanRequested
from tests.actors.llm.offline.prompts import description
from tests.actors.llm.offline.test_planning import search
from tests.messages.examples import SCRIPT

ALLOWED = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref", "$defs", "description"
}  # fmt: skip
"""Keywords that strict mode takes of every model, fine-tuned ones included, and other endpoints' decoders too."""
SCHEMA = strict_schema(EditScript)
ALL_KINDS = EditScript(
    summary="Memory bound.",
    open_questions=("Why?",),
    edits=(
        Insert(parent="n0", title="Fuse", description="One pass.", difficulty=2, priority=0.7, key="a"),
        Update(node="n1", priority=0.2),
        Prune(node="n2", reason="It was slower."),
        Split(
            node="n3",
            into=tuple(
                Proposal(title=title, description="", difficulty=1, priority=0.5) for title in ("Rows", "Columns")
            ),
        ),
    ),
)


def below(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all in it."""
    yield schema
    parts = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        yield from below(part)


TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "null": type(None), "array": list, "object": dict
}  # fmt: skip


def accepts(schema: Mapping[str, Any], value: object) -> bool:
    """Say whether a value keeps to a schema of the keywords above."""
    if "$ref" in schema:
        return accepts(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], value)
    if "anyOf" in schema:
        return any(accepts(option, value) for option in schema["anyOf"])
    if not isinstance(value, TYPES[schema["type"]]) or value not in schema.get("enum", [value]):
        return False
    if isinstance(value, list):
        return all(accepts(schema["items"], item) for item in value)
    if isinstance(value, dict):
        properties = schema["properties"]
        return value.keys() == properties.keys() and all(accepts(properties[key], value[key]) for key in value)
    return True


def test_the_schema_of_edit_scripts_is_in_the_strict_form() -> None:
    assert SCHEMA["type"] == "object"
    for schema in below(SCHEMA):
        assert schema.keys() <= ALLOWED
        if "$ref" in schema:
            assert schema.keys() == {"$ref"}
            assert schema["$ref"].removeprefix("#/$defs/") in SCHEMA["$defs"]
        else:
            assert ("type" in schema) != ("anyOf" in schema)
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


def test_the_schema_is_within_the_sizes_of_strict_mode() -> None:
    properties = [name for schema in below(SCHEMA) for name in schema.get("properties", {})]
    assert len(properties) <= 5000
    assert len(json.dumps(SCHEMA)) <= 15_000


@pytest.mark.parametrize("script", [SCRIPT, ALL_KINDS, EditScript()])
def test_edit_scripts_keep_to_the_schema_and_are_read_back_as_they_were(script: EditScript) -> None:
    written = msgspec.json.encode(script)
    assert accepts(SCHEMA, json.loads(written))
    assert decode_script(written.decode()) == script


def test_what_a_planner_answers_keeps_to_the_schema() -> None:
    request = plan_request(search(), PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8), description())
    script, _ = parse_script(plan_answer(request.prompt))
    assert script is not None
    assert len(script.edits) >= 3
    assert accepts(SCHEMA, msgspec.json.decode(msgspec.json.encode(script)))


@pytest.mark.parametrize(
    "change",
    [
        {"summary": None}, {"note": ""}, {"edits": [{"op": "drop", "node": "n1"}]}, {"edits": [{"op": "prune"}]},
        {"edits": [{"op": "prune", "node": "n1", "reason": "r", "state": "closed"}]}, {"open_questions": "none"},
    ],
)  # fmt: skip
def test_what_the_decoder_refuses_for_its_form_does_not_keep_to_the_schema(change: dict[str, object]) -> None:
    assert not accepts(SCHEMA, {"summary": "", "open_questions": [], "edits": []} | change)


def test_bounds_are_said_in_words() -> None:
    priority = SCHEMA["$defs"]["Insert"]["properties"]["priority"]
    assert priority == {"type": "number", "description": "at least 0.0, at most 1.0"}


class Free(msgspec.Struct):
    names: dict[str, int]


def test_what_strict_mode_cannot_say_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"Free\.names: strict mode has no objects with free keys"):
        strict_schema(Free)


def test_a_schema_is_named_after_its_struct() -> None:
    assert answer_schema(EditScript).name == "edit_script"
