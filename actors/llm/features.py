"""What is sent along with a question, and what is known of an endpoint: which of the API's features it has."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec

from actors.llm.base import ReasoningEffort

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
