"""What the models of a run cost, by role, model and action: a sum over its journal.

Money is what the journal says an answer cost, by the run's price for its model; or by another table, if one is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from messages.base import ROOT, Usage
from messages.codec import Record
from messages.events import RunResumed, RunStarted
from messages.facts import Decided, EditsApplied, NodeInserted, SpendRecorded
from messages.models import Lineup, Offer, Price

Role: TypeAlias = Literal["planner", "coder"]
PriceOf: TypeAlias = Callable[[str], Price | None]
"""From a model's name."""


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """Answers and what they cost."""

    usage: Usage = Usage()
    latencies_s: tuple[float, ...] = ()
    cost_usd: float = 0.0
    """Of the answers whose price is known."""
    unpriced_calls: int = 0
    """Answers whose price is not."""

    @property
    def known_usd(self) -> float | None:
        """What all of it cost; None if a price is not known."""
        return None if self.unpriced_calls else self.cost_usd

    def plus(self, other: Spend) -> Spend:
        """Return the sum of both."""
        return Spend(
            usage=self.usage.plus(other.usage),
            latencies_s=self.latencies_s + other.latencies_s,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent, in parts."""

    by_model: Mapping[tuple[Role, str], Spend]
    """By role and name; models that the run may ask and never did have nothing."""
    by_node: Mapping[str, Spend]
    """What coders cost, by the action that they wrote for."""
    titles: Mapping[str, str]
    """Of those actions."""

    def of_role(self, role: Role) -> Spend:
        """Return what one role cost, all its models together."""
        total = Spend()
        for (asked, _), spend in self.by_model.items():
            if asked == role:
                total = total.plus(spend)
        return total


def spending_of(records: Iterable[Record], price_of: PriceOf | None = None) -> Spending:
    """Add up a run's records.

    Args:
        records: of its journal.
        price_of: gives prices to go by instead of those of the journal; None for a model leaves the journal's.
    """
    by_model: dict[tuple[Role, str], Spend] = {}
    by_node: dict[str, Spend] = {}
    titles = {ROOT: "the reference"}
    lineups: list[Lineup] = []
    for record in records:
        if isinstance(record.body, RunStarted | RunResumed) and record.body.lineup is not None:
            lineups.append(record.body.lineup)
        for fact in record.body.facts if isinstance(record.body, Decided) else ():
            if isinstance(fact, SpendRecorded):
                spend = _spend(fact, price_of)
                key = (fact.role, fact.model)
                by_model[key] = by_model.get(key, Spend()).plus(spend)
                if fact.node_id:
                    by_node[fact.node_id] = by_node.get(fact.node_id, Spend()).plus(spend)
            elif isinstance(fact, NodeInserted):
                titles[fact.node_id] = fact.title
            elif isinstance(fact, EditsApplied):
                titles |= {each.node_id: each.title for each in fact.changes if isinstance(each, NodeInserted)}
    by_model |= dict.fromkeys([key for lineup in lineups for key in _unasked(lineup, by_model)], Spend())
    return Spending(by_model=by_model, by_node=by_node, titles=titles)


def _unasked(lineup: Lineup, asked: Mapping[tuple[Role, str], Spend]) -> Iterator[tuple[Role, str]]:
    """Yield who never answered. One model alone answers by the name that its endpoint gives it, whatever ours is."""
    offers: dict[Role, tuple[Offer, ...]] = {"planner": (lineup.planner,), "coder": lineup.coders}
    for role, known in offers.items():
        was_asked = any(who == role for who, _ in asked)
        if len(known) > 1 or not was_asked:
            yield from ((role, offer.name) for offer in known if offer.name and (role, offer.name) not in asked)


def _spend(fact: SpendRecorded, price_of: PriceOf | None) -> Spend:
    price = price_of(fact.model) if price_of is not None else None
    cost_usd = fact.cost_usd if price is None else price.of(fact.usage)
    return Spend(
        usage=fact.usage,
        latencies_s=(fact.latency_s,),
        cost_usd=cost_usd or 0.0,
        unpriced_calls=fact.usage.calls if cost_usd is None else 0,
    )


NOTHING = Spending(by_model={}, by_node={}, titles={})
