"""Features of an endpoint's API, and answer schemas in OpenAI's strict form.

Strict mode (platform.openai.com, "Structured outputs") requires an object at the root, closed objects with all fields
required, `anyOf` for alternatives, `$ref` for definitions. Bounds are described in words: not all endpoints accept
them, and the decoder checks them anyway.
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
    """Return the strict schema of a struct. Raises `ValueError` for free keys and other things it cannot express."""
    plain = msgspec.json.schema(struct)
    definitions = {name: _strict(schema, name) for name, schema in plain["$defs"].items()}
    root = definitions.pop(plain["$ref"].removeprefix("#/$defs/"))
    return {**root, "$defs": definitions} if definitions else root


def _strict(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
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
"""Availability of a feature."""
_SEED_BITS: Final = 31
"""Endpoints keep seeds in signed integers of 32 or 64 bits."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings that are sent with every question; None leaves one to the endpoint."""

    temperature: float | None = None
    max_tokens: int | None = None
    """Output tokens, hidden reasoning included."""
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    """Seed from which each question gets its own, see `seed_of`."""


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Features that an endpoint supports, as far as known."""

    structured: bool = False
    """It constrains an answer to a JSON schema. Not assumed."""
    streams: bool = True
    """Answers arrive in pieces, so that they can be ended early."""
    usage_in_stream: bool = True
    max_tokens_name: MaxTokensName = "max_completion_tokens"
    """Name of the answer's limit in chat completions."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a probe, as it is remembered. Holds no key."""

    model: str
    base_url: str | None
    dialects: tuple[ProbedDialect, ...]
    """Those that work; none: the endpoint cannot be used."""
    structured: State = "unknown"
    streams: State = "unknown"
    usage_in_stream: State = "unknown"
    max_tokens_name: MaxTokensName = "max_completion_tokens"
    refused: tuple[str, ...] = ()
    """Refused ones of `temperature`, `seed` and `reasoning_effort`."""
    caching_reported: State = "unknown"
    """It says how much of a prompt was cached."""

    @property
    def features(self) -> Features:
        """Features for a search."""
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
    """Return the features with the limit's older name if an answer of `said` tokens ignored the newer one.

    Local servers often know `max_tokens` only and ignore unknown names. None: the answer shows nothing, or there is no
    other name.
    """
    if limit is None or said <= limit or features.max_tokens_name == "max_tokens":
        return None
    return msgspec.structs.replace(features, max_tokens_name="max_tokens")


def without_refused(features: Features, said: str, *, asked_structured: bool) -> Features | None:
    """Return the features without the one that an endpoint refused; None if its refusal is about something else.

    `asked_structured`: the question had a schema, which has never worked here.
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
