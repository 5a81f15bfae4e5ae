"""Models of a run, their prices, and quotes of what a call costs.

The search counts money and chooses models by these values, so that its journal explains both. They contain no addresses
and keys.

A coder's prompt is the task, the code that it builds on and a little more; its answer is a program, which the event has
as a candidate; a planner's prompt begins like the one before. Kept whole, they would be most of a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, TypeAlias

import msgspec

from messages.base import EditFormat, Message, Usage

Choice: TypeAlias = Literal["weights", "bandit"]
"""Choice of one of several coder models for a candidate: at random by the weights, or by the results of each model for
its cost; see `actors/planner/core/arms.py`."""
Dollars: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0)]


class Price(Message, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input_usd: Dollars
    cached_usd: Dollars
    """Price of prompt tokens that the endpoint had in its prefix cache."""
    output_usd: Dollars
    """Price of completion tokens, hidden reasoning included."""
    dated: str = ""
    """When the price was looked up, ISO 8601; empty: not known."""
    source: str = ""

    def of(self, usage: Usage) -> float:
        """Return the cost of tokens, in US dollars."""
        fresh_tokens = usage.prompt_tokens - usage.cached_tokens
        return (
            fresh_tokens * self.input_usd
            + usage.cached_tokens * self.cached_usd
            + usage.completion_tokens * self.output_usd
        ) / 1e6


class Offer(Message, frozen=True, kw_only=True):
    """A model that a run may call."""

    name: str = ""
    """Unique among the run's coder models; empty: any model of the coders."""
    price: Price | None = None
    """Null: not known, tokens only."""
    weight: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """Its share of the candidates, if they are drawn by weights."""
    tier: str = ""
    """Tier of the coders that have it; empty: the run's tier."""
    edit_format: EditFormat | None = None
    """In which form it answers; null: as the run's settings say."""


class Lineup(Message, frozen=True, kw_only=True):
    """Models of a run."""

    planner: Offer = Offer()
    coders: tuple[Offer, ...] = ()
    """None or one: nothing is chosen, and jobs name no model."""
    choice: Choice = "weights"

    def coder(self, model: str) -> Offer:
        """Return the coder model of this name; the first, or whichever the coders have, if none is called so."""
        first = self.coders[0] if self.coders else Offer()
        return next((offer for offer in self.coders if offer.name == model), first)


TASK = "task"
"""Where the task's text is quoted from, which the run's first event has."""
_FEWEST_CHARS = 200
"""Shorter passages are not worth a quote."""
_MOST_QUOTES = 64
"""So that a small event cannot stand for a text that fills the memory."""


class Quote(Message, frozen=True, kw_only=True):
    """A passage that was taken out of a text, and where it is to be had."""

    at: int
    """How many characters of what is left of the text stand before it."""
    source: str
    """A candidate's id; the id of the planner's job with the prompt; or `TASK`."""
    path: str = ""
    """File of a candidate."""
    chars: int | None = None
    """Number of the source's first characters; null: all."""


class Original(Message, frozen=True, kw_only=True):
    """A text that may be quoted."""

    source: str
    path: str = ""
    text: str


def quoting(text: str, originals: Iterable[Original]) -> tuple[str, tuple[Quote, ...]]:
    """Return what is left of a text without the passages that are in these, and where they belong.

    Originals count without empty lines before and behind them; of several that fit the longest goes first.
    """
    pieces: list[str | Original] = [text]
    for original in sorted(originals, key=lambda each: -len(each.text)):
        passage = original.text.strip("\n")
        if len(passage) >= _FEWEST_CHARS:
            pieces = [part for piece in pieces for part in _split(piece, passage, original)]
    left, quotes = _joined(pieces)
    return (left, quotes) if len(quotes) <= _MOST_QUOTES else (text, ())


def continuing(text: str, before: Original) -> tuple[str, tuple[Quote, ...]]:
    """Return what is left of a text without the beginning that it shares with another."""
    chars = common_length(text, before.text)
    if chars < _FEWEST_CHARS:
        return text, ()
    return text[chars:], (Quote(at=0, source=before.source, path=before.path, chars=chars),)


def common_length(first: str, second: str) -> int:
    """Return how long the common beginning of two texts is."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def whole(text: str, quotes: tuple[Quote, ...], find: Callable[[Quote], str | None]) -> str:
    """Return a text with its quotes where they belong.

    Args:
        text: what is left of it.
        quotes: in order.
        find: returns the text that a quote is from; None: it is not known, which the result says.
    """
    parts, done = [], 0
    for quote in quotes[:_MOST_QUOTES]:
        original = find(quote)
        parts += [text[done : quote.at], _passage(quote, original)]
        done = max(done, quote.at)
    return "".join([*parts, text[done:]])


def _passage(quote: Quote, original: str | None) -> str:
    if original is None:
        return f"[a passage of {quote.source!r}, which this run has not]"
    return original.strip("\n") if quote.chars is None else original[: quote.chars]


def _split(piece: str | Original, passage: str, original: Original) -> list[str | Original]:
    if isinstance(piece, Original) or passage not in piece:
        return [piece]
    first, *others = piece.split(passage)
    return [first, *(part for other in others for part in (original, other))]


def _joined(pieces: list[str | Original]) -> tuple[str, tuple[Quote, ...]]:
    left, quotes = "", []
    for piece in pieces:
        if isinstance(piece, str):
            left += piece
        else:
            quotes.append(Quote(at=len(left), source=piece.source, path=piece.path))
    return left, tuple(quotes)
