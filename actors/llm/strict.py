"""From a struct to a JSON schema in the form that OpenAI's strict mode takes; others' guided decoding takes it too.

What strict mode asks for (platform.openai.com, "Structured outputs", supported schemas): an object at the root, every
object closed and all of its fields required, alternatives by `anyOf` alone, definitions by `$ref`. Bounds are left out,
which not all endpoints take, and said in words instead: the decoder checks them anyway. So an answer that keeps to the
schema has the right form, not yet the right content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from actors.llm.base import AnswerSchema

_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
}
_DROPPED: Final = frozenset({"default", "discriminator", "title"})
_KEPT: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref", "$defs", "description"}
)
_TYPE_NAMES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def answer_schema(struct: type[msgspec.Struct]) -> AnswerSchema:
    """Return the strict schema of answers that decode to `struct`, named after it."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", struct.__name__).lower()
    return AnswerSchema(name=name, schema=strict_schema(struct))


def strict_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the strict schema of a struct.

    Raises:
        ValueError: the struct holds something that strict mode cannot say, such as a mapping with free keys.
    """
    plain = msgspec.json.schema(struct)
    definitions = {name: _strict(schema, name) for name, schema in plain["$defs"].items()}
    root = definitions.pop(plain["$ref"].removeprefix("#/$defs/"))
    return {**root, "$defs": definitions} if definitions else root


def _strict(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert one schema and all below it."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    unknown = schema.keys() - _KEPT - _DROPPED - _BOUNDS.keys()
    if unknown:
        raise ValueError(f"{where}: strict mode has no {', '.join(sorted(unknown))}")
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    bounds = [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    if bounds:
        kept["description"] = ". ".join([*([kept["description"]] if "description" in kept else []), ", ".join(bounds)])
    if "enum" in kept:
        kept["type"] = _type_of(kept["enum"], where)
    if "anyOf" in kept:
        kept["anyOf"] = [_strict(option, where) for option in kept["anyOf"]]
    if "items" in kept:
        kept["items"] = _strict(kept["items"], where)
    if kept.get("type") == "object":
        kept |= _closed(kept, where)
    return kept


def _closed(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what makes an object a closed one with all of its fields required."""
    if "properties" not in schema:
        raise ValueError(f"{where}: strict mode has no objects with free keys")
    properties = {key: _strict(value, f"{where}.{key}") for key, value in schema["properties"].items()}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _type_of(values: list[object], where: str) -> str | list[str]:
    names = sorted({_TYPE_NAMES[type(value)] for value in values if type(value) in _TYPE_NAMES})
    if not names:
        raise ValueError(f"{where}: strict mode has no values such as {values[0]!r}")
    return names[0] if len(names) == 1 else names
