"""Which models a run asks, what they charge, and how one of several is chosen: part of the run's events.

The search counts money and chooses models by what stands here, so that its journal explains both. Addresses and keys
have no place in it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from messages.base import EditFormat, Message, Usage

Choice: TypeAlias = Literal["weights", "bandit"]
"""How one of several coder models is chosen for a candidate: drawn in proportion to the weights, or by what each has
brought for its cost; see `actors/planner/core/arms.py`."""
Dollars: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0)]


class Price(Message, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input_usd: Dollars
    cached_usd: Dollars
    """Of prompt tokens that the endpoint had in its prefix cache."""
    output_usd: Dollars
    """Of completion tokens, hidden reasoning included."""
    dated: str = ""
    """When the price was looked up, ISO 8601; empty: not known."""
    source: str = ""

    def of(self, usage: Usage) -> float:
        """Return what tokens cost, in US dollars."""
        fresh_tokens = usage.prompt_tokens - usage.cached_tokens
        return (
            fresh_tokens * self.input_usd
            + usage.cached_tokens * self.cached_usd
            + usage.completion_tokens * self.output_usd
        ) / 1e6


class Offer(Message, frozen=True, kw_only=True):
    """A model that a run may ask."""

    name: str = ""
    """Unique among the run's coder models; empty: whichever the coders have."""
    price: Price | None = None
    """Null: not known, tokens only."""
    weight: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """Its share of the candidates, where they are drawn by weights."""
    tier: str = ""
    """Which coders have it; empty: those of the run's tier."""
    edit_format: EditFormat | None = None
    """In which form it answers; null: as the run's settings say."""


class Lineup(Message, frozen=True, kw_only=True):
    """Who plans and who writes."""

    planner: Offer = Offer()
    coders: tuple[Offer, ...] = ()
    """None or one: nothing is chosen, and jobs name no model."""
    choice: Choice = "weights"

    def coder(self, model: str) -> Offer:
        """Return the coder model of this name; the first, or whichever the coders have, if none is called so."""
        first = self.coders[0] if self.coders else Offer()
        return next((offer for offer in self.coders if offer.name == model), first)
