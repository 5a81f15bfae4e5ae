"""Which of several coder models is asked for the next candidate: by weights, or by what each brings for its cost.

`bandit` is budgeted Thompson sampling (Xia, Li, Qin, Yu, Liu: "Thompson Sampling for Budgeted Multi-Armed Bandits",
IJCAI 2015): for each model the chance that its answer is worth something is drawn from the Beta distribution that its
record leaves possible, and the largest quotient of drawn chance and expected cost is asked. Drawing, not taking the
largest bound, spreads questions that are asked before the first of them is answered (Chapelle, Li, NIPS 2011).

- Reward, in [0, 1]: 1 for a candidate that is better than all before it in its branch, `CORRECT_REWARD` for another
  correct one, 0 for anything else. It is added in parts to the two parameters, both 1 at first.
- Improving becomes rarer as a search goes on, and models differ in what they are good at: records fade by `FADING` with
  every answer of any model (discounted Thompson sampling: Raj, Kalyani, arXiv 1707.09727), so that none is written off
  for ever.
- Cost: dollars if the price of each model is known and not 0, else tokens. The mean of a model's answers, with the mean
  over all models, at the model's own price, as one answer more.

Draws are a keyed hash of the run's seed and a counter in the state: the same journal, the same choices.
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
"""Half of a record is forgotten in 34 answers."""
TYPICAL = Usage(calls=1, prompt_tokens=4000, completion_tokens=3000)
"""What a question is expected to cost before any was answered: a kernel's prompt, and a kernel with some reasoning."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one coder model."""

    name: str
    gains: float = 0.0
    """Sum of its rewards, faded."""
    trials: float = 0.0
    """How many, faded."""
    usage: Usage = Usage()
    """Of all its answers, not faded."""
    correct: int = 0
    better: int = 0
    """Of these answers, those better than all before them in their branch."""


def arms_of(lineup: Lineup, known: tuple[Arm, ...] = ()) -> tuple[Arm, ...]:
    """Return a record for each of several coder models, what was learned of those that were there before kept."""
    if len(lineup.coders) < 2:
        return ()
    kept = {arm.name: arm for arm in known}
    return tuple(kept.get(offer.name, Arm(name=offer.name)) for offer in lineup.coders)


def with_usage(arms: tuple[Arm, ...], name: str, usage: Usage) -> tuple[Arm, ...]:
    """Return the records with one more answer paid for."""
    return tuple(replace(arm, usage=arm.usage.plus(usage)) if arm.name == name else arm for arm in arms)


def with_outcome(arms: tuple[Arm, ...], name: str, *, correct: bool, better: bool) -> tuple[Arm, ...]:
    """Return the records with what came of one model's answer; the same if it is none of theirs."""
    if all(arm.name != name for arm in arms):
        return arms
    reward = 1.0 if better else CORRECT_REWARD if correct else 0.0
    return tuple(_learned(arm, reward, correct, better) if arm.name == name else _faded(arm) for arm in arms)


def choose(offers: tuple[Offer, ...], lineup: Lineup, arms: tuple[Arm, ...], *, seed: int, counter: int) -> str:
    """Return the name of the model to ask.

    Args:
        offers: those that may be asked now, at least one.
        lineup: how to choose.
        arms: the records.
        seed: the run's.
        counter: another number in every choice.
    """
    draws = uniforms(seed, "model", counter)
    if lineup.choice == "weights":
        return _by_weight(offers, next(draws))
    records = {arm.name: arm for arm in arms}
    usual = usual_usage(arms)
    in_dollars = all(offer.price is not None and offer.price.of(TYPICAL) > 0 for offer in lineup.coders)

    def worth(offer: Offer) -> float:
        arm = records[offer.name]
        chance = _beta(1.0 + arm.gains, 1.0 + max(0.0, arm.trials - arm.gains), draws)
        return chance / _expected(offer, arm, usual, in_dollars=in_dollars)

    return max(offers, key=worth).name


def usual_usage(arms: tuple[Arm, ...]) -> Usage:
    """Return the mean answer over all models, as one call; `TYPICAL` before the first."""
    total = Usage()
    for arm in arms:
        total = total.plus(arm.usage)
    return mean_usage(total) or TYPICAL


def mean_usage(total: Usage) -> Usage | None:
    """Return the mean of answers, as one call; None if there was none."""
    if not total.calls:
        return None
    return Usage(
        calls=1,
        prompt_tokens=round(total.prompt_tokens / total.calls),
        cached_tokens=round(total.cached_tokens / total.calls),
        completion_tokens=round(total.completion_tokens / total.calls),
    )


def uniforms(seed: int, purpose: str, counter: int) -> Iterator[float]:
    """Yield numbers in the open interval from 0 to 1, always the same ones for the same arguments."""
    index = 0
    while True:
        key = f"{seed}/{purpose}/{counter}/{index}".encode()
        drawn = int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 11
        yield (drawn + 0.5) / (1 << 53)
        index += 1


def _learned(arm: Arm, reward: float, correct: bool, better: bool) -> Arm:
    faded = _faded(arm)
    return replace(
        faded,
        gains=faded.gains + reward,
        trials=faded.trials + 1.0,
        correct=arm.correct + correct,
        better=arm.better + better,
    )


def _faded(arm: Arm) -> Arm:
    return replace(arm, gains=arm.gains * FADING, trials=arm.trials * FADING)


def _expected(offer: Offer, arm: Arm, usual: Usage, *, in_dollars: bool) -> float:
    spent = arm.usage.plus(usual)
    if in_dollars and offer.price is not None:
        return offer.price.of(spent) / spent.calls
    return spent.tokens / spent.calls


def _by_weight(offers: tuple[Offer, ...], drawn: float) -> str:
    left = drawn * sum(offer.weight for offer in offers)
    for offer in offers:
        left -= offer.weight
        if left < 0:
            return offer.name
    return offers[-1].name


def _beta(alpha: float, beta: float, draws: Iterator[float]) -> float:
    """Draw from a Beta distribution, both parameters at least 1."""
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
