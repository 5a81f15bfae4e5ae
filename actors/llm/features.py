"""Features of an endpoint's API, and answer schemas in OpenAI's strict form.

What strict mode asks for (platform.openai.com, "Structured outputs", supported schemas): an object at the root, every
object closed and all of its fields required, alternatives by `anyOf` alone, definitions by `$ref`. Bounds are left out,
which not all endpoints take, and said in words instead: the decoder checks them anyway. So an answer that keeps to the
schema has the right form, not yet the right content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from actors.llm.base import AnswerSchema, ReasoningEffort

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


MaxTokensName: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
ProbedDialect: TypeAlias = Literal["chat", "responses"]
State: TypeAlias = Literal["yes", "no", "unknown"]
"""Whether an endpoint has a feature."""
_SEED_BITS: Final = 31
"""Endpoints keep seeds in signed integers of 32 or 64 bits."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent along with every question; null is left to the endpoint."""

    temperature: float | None = None
    max_tokens: int | None = None
    """Output tokens, hidden reasoning included."""
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    """Of the endpoint's draws; every question gets one of its own from it, see `seed_of`."""


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint takes, as far as it is known."""

    structured: bool = False
    """It holds an answer to a JSON schema. Not assumed."""
    streams: bool = True
    """Answers come piece by piece, so that they can be ended early."""
    usage_in_stream: bool = True
    max_tokens_name: MaxTokensName = "max_completion_tokens"
    """How the limit of an answer is called in chat completions."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, as it is remembered. Holds no key."""

    model: str
    base_url: str | None
    dialects: tuple[ProbedDialect, ...]
    """Those that work; none: the endpoint cannot be used."""
    structured: State = "unknown"
    streams: State = "unknown"
    usage_in_stream: State = "unknown"
    max_tokens_name: MaxTokensName = "max_completion_tokens"
    refused: tuple[str, ...] = ()
    """Of `temperature`, `seed` and `reasoning_effort`, those that it does not take."""
    caching_reported: State = "unknown"
    """It says how much of a prompt it had in its cache."""

    @property
    def features(self) -> Features:
        """What a search may use."""
        return Features(
            structured=self.structured == "yes",
            streams=self.streams != "no",
            usage_in_stream=self.usage_in_stream != "no",
            max_tokens_name=self.max_tokens_name,
        )


def seed_of(seed: int, request_id: str) -> int:
    """Return a question's seed: samples differ, and the same question of another run with this seed has the same."""
    number = request_id.rpartition("-")[2]
    digest = blake2b(f"{seed}|{number}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - _SEED_BITS)


def after_overlong(features: Features, limit: int | None, said: int) -> Features | None:
    """Return the features with the limit's older name, where an answer shows that the newer one is passed over.

    Servers of one's own often know `max_tokens` only, and leave out in silence what they do not know.

    Args:
        features: that were used.
        limit: tokens that an answer may have; null: none was sent.
        said: tokens that it had, at least.

    Returns:
        None: the answer shows nothing, or there is no other name.
    """
    if limit is None or said <= limit or features.max_tokens_name == "max_tokens":
        return None
    return msgspec.structs.replace(features, max_tokens_name="max_tokens")


def without_refused(features: Features, said: str, *, asked_structured: bool) -> Features | None:
    """Return the features without the one that an endpoint refused; None if its refusal is about something else.

    Args:
        features: that were used.
        said: what the endpoint said when it refused.
        asked_structured: the question was asked with a schema, which has never worked here.
    """
    if features.streams and "stream_options" in said and features.usage_in_stream:
        return msgspec.structs.replace(features, usage_in_stream=False)
    if features.max_tokens_name == "max_completion_tokens" and "max_completion_tokens" in said:
        return msgspec.structs.replace(features, max_tokens_name="max_tokens")
    if asked_structured:
        return msgspec.structs.replace(features, structured=False)
    if features.streams and "stream" in said.lower():
        return msgspec.structs.replace(features, streams=False)
    return None
