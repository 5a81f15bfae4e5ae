"""Chooses the coder model for the next candidate: by weights, or by value for money.

`bandit` is budgeted Thompson sampling (Xia et al., "Thompson Sampling for Budgeted Multi-Armed Bandits", IJCAI 2015):
it draws a success rate for each model from the Beta distribution of its record, and asks the model with the largest
quotient of drawn rate and expected cost. Drawing spreads questions asked before the first answer (Chapelle, Li, NIPS
2011).

- Reward: 1 for a candidate better than all before it in its branch, `CORRECT_REWARD` for another correct one, else 0.
- Records are multiplied by `FADING` at every answer (discounted Thompson sampling: Raj, Kalyani, arXiv 1707.09727).
- Cost: dollars if each model's price is known and not 0, else tokens. It is the model's mean, smoothed by one answer at
  the mean over all models.

Draws are a keyed hash of the run's seed and a counter, so the same journal gives the same choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from messages.base import Usage
from messages.models import Lineup, Offer

CORRECT_REWARD = 0.25
FADING = 0.98
"""Factor for records at every answer: half of a record is forgotten in 34 answers."""
TYPICAL = Usage(calls=1, prompt_tokens=4000, completion_tokens=3000)
"""Expected cost of a question before the first answer."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one coder model."""

    name: str
    gains: float = 0.0
    """Discounted sum of rewards."""
    trials: float = 0.0
    """Discounted number of answers."""
    usage: Usage = Usage()
    """Usage of all its answers, not discounted."""
    correct: int = 0
    better: int = 0
    """Answers better than all before them in their branch."""


def arms_of(lineup: Lineup, known: tuple[Arm, ...] = ()) -> tuple[Arm, ...]:
    """Return a record for each coder model, keeping known records; empty unless there are several models."""
    if len(lineup.coders) < 2:
        return ()
    kept = {arm.name: arm for arm in known}
    return tuple(kept.get(offer.name, Arm(name=offer.name)) for offer in lineup.coders)


def with_usage(arms: tuple[Arm, ...], name: str, usage: Usage) -> tuple[Arm, ...]:
    """Return the records with the usage of one more answer added."""
    return tuple(replace(arm, usage=arm.usage.plus(usage)) if arm.name == name else arm for arm in arms)


def with_outcome(arms: tuple[Arm, ...], name: str, *, correct: bool, better: bool) -> tuple[Arm, ...]:
    """Return the records updated with one model's outcome; unchanged if the model is not among them."""
    if all(arm.name != name for arm in arms):
        return arms
    reward = 1.0 if better else CORRECT_REWARD if correct else 0.0
    faded = [replace(arm, gains=arm.gains * FADING, trials=arm.trials * FADING) for arm in arms]
    return tuple(
        replace(
            arm,
            gains=arm.gains + reward,
            trials=arm.trials + 1.0,
            correct=arm.correct + correct,
            better=arm.better + better,
        )
        if arm.name == name
        else arm
        for arm in faded
    )


def choose(offers: tuple[Offer, ...], lineup: Lineup, arms: tuple[Arm, ...], *, seed: int, counter: int) -> str:
    """Return the name of the model to ask, one of `offers`; `counter` must differ for every choice."""
    draws = uniforms(seed, "model", counter)
    if lineup.choice == "weights":
        left = next(draws) * sum(offer.weight for offer in offers)
        for offer in offers:
            left -= offer.weight
            if left < 0:
                return offer.name
        return offers[-1].name
    records = {arm.name: arm for arm in arms}
    total = Usage()
    for arm in arms:
        total = total.plus(arm.usage)
    usual = mean_usage(total) or TYPICAL
    in_dollars = all(offer.price is not None and offer.price.of(TYPICAL) > 0 for offer in lineup.coders)

    def worth(offer: Offer) -> float:
        arm = records[offer.name]
        chance = _beta(1.0 + arm.gains, 1.0 + max(0.0, arm.trials - arm.gains), draws)
        spent = arm.usage.plus(usual)
        cost = offer.price.of(spent) if in_dollars and offer.price is not None else spent.tokens
        return chance / (cost / spent.calls)

    return max(offers, key=worth).name


def mean_usage(total: Usage) -> Usage | None:
    """Return the mean usage per answer, as one call; None if there were no answers."""
    if not total.calls:
        return None
    return Usage(
        calls=1,
        prompt_tokens=round(total.prompt_tokens / total.calls),
        cached_tokens=round(total.cached_tokens / total.calls),
        completion_tokens=round(total.completion_tokens / total.calls),
    )


def uniforms(seed: int, purpose: str, counter: int) -> Iterator[float]:
    """Yield numbers between 0 and 1 (exclusive); the same arguments give the same numbers."""
    index = 0
    while True:
        key = f"{seed}/{purpose}/{counter}/{index}".encode()
        drawn = int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 11
        yield (drawn + 0.5) / (1 << 53)
        index += 1


def _beta(alpha: float, beta: float, draws: Iterator[float]) -> float:
    first, second = _gamma(alpha, draws), _gamma(beta, draws)
    return first / (first + second)


def _gamma(shape: float, draws: Iterator[float]) -> float:
    """Draw from a Gamma distribution of scale 1, shape at least 1 (Marsaglia, Tsang, ACM TOMS 26(3), 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = math.sqrt(-2.0 * math.log(next(draws))) * math.cos(2.0 * math.pi * next(draws))  # Box, Muller 1958
        v = (1.0 + c * x) ** 3
        if v > 0 and math.log(next(draws)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v
