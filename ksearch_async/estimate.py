"""What a run is likely to take in calls, tokens, money and time, said as ranges before it starts.

The first prompts are really built; how they grow, how long answers get and how fast they come is only known once a run
of the same task with the same models is there. Until then wide ranges stand for it: `ASSUMED` and the constants here.
Limits of the budget cut the ranges off.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ksearch_async.config import RunConfig
from ksearch_async.forecast import Earlier, Forecast
from messages.base import Usage
from messages.models import Lineup, Price

Range: TypeAlias = tuple[float, float]
"""From, to."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken for granted of answers."""

    coder_tokens: tuple[int, int] = (1_000, 8_000)
    """Completion tokens: a short kernel, or a long one after some reasoning."""
    planner_tokens: tuple[int, int] = (500, 4_000)
    tokens_per_s: tuple[float, float] = (100.0, 20.0)
    """How fast answers come."""
    evaluation_s: tuple[float, float] = (2.0, 20.0)
    """Building, checking and timing one candidate."""


ASSUMED = Answers()
_REPEATS = 1.5
"""At most so many questions per evaluation: answers that repeat a candidate, or hold none."""
_LOG_TOKENS = 1_000
"""What failed, in a coder's prompt."""
_NODE_TOKENS, _NODES_PER_ROUND, _REPORT_TOKENS = 40, 2, 1_500
"""How a planner's prompt grows: a line per action, and what happened since."""
_CACHED_AT_BEST = 0.5
"""Share of prompts that the endpoint has in its prefix cache, at best; at worst none."""
_OFFLINE_TOKENS_PER_S = 1e6
_SPREAD = (0.6, 1.6)
"""How far a run may lie from an earlier one like it."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """From, to; null: not known."""

    calls: tuple[int, int]
    tokens: tuple[int, int]
    cost_usd: Range | None
    time_s: Range
    rests_on: str
    """In words."""


def estimate(config: RunConfig, told: Forecast, lineup: Lineup, before: Earlier | None) -> Estimate:
    """Say what a run is likely to take.

    Args:
        config: what it is started with.
        told: its calls, and its first prompts as they were built.
        lineup: which models it asks, at what price.
        before: an earlier run of the task on this machine.
    """
    like = before if before is not None and _same_models(before, config) else None
    ends = [_end(config, told, lineup, like, at) for at in (0, 1)]
    budget = config.search.budget
    low, high = ends
    calls = tuple(min(end.usage.calls, budget.max_calls or end.usage.calls) for end in ends)
    tokens = tuple(min(end.usage.tokens, budget.max_tokens or end.usage.tokens) for end in ends)
    cost_usd = None
    if low.cost_usd is not None and high.cost_usd is not None:
        limit = budget.max_cost_usd or high.cost_usd
        cost_usd = (round(min(low.cost_usd, limit), 4), round(min(high.cost_usd, limit), 4))
    time_s = tuple(round(min(end.time_s, budget.wall_clock_s or end.time_s), 1) for end in ends)
    return Estimate(
        calls=(calls[0], calls[1]),
        tokens=(tokens[0], tokens[1]),
        cost_usd=cost_usd,
        time_s=(time_s[0], time_s[1]),
        rests_on=_words(config, like),
    )


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of the ranges."""

    usage: Usage
    cost_usd: float | None
    time_s: float


def _end(config: RunConfig, told: Forecast, lineup: Lineup, like: Earlier | None, at: int) -> _End:
    coder, planner = _usages(config, told, like, at)
    prices = [offer.price for offer in lineup.coders] or [None]
    costs = [_cost(coder, price, at) for price in prices]
    planning = _cost(planner, lineup.planner.price, at)
    known = [cost for cost in costs if cost is not None]
    cost_usd = None
    if planning is not None and len(known) == len(costs):
        cost_usd = planning + (min(known) if at == 0 else max(known))
    usage = coder.plus(planner)
    return _End(usage=usage, cost_usd=cost_usd, time_s=_time_s(config, coder, lineup, like, at))


def _usages(config: RunConfig, told: Forecast, like: Earlier | None, at: int) -> tuple[Usage, Usage]:
    """Return what coders and the planner use, at the lower or the upper end."""
    coder_calls = round(told.coder_calls * (1.0, _REPEATS)[at])
    planner_calls = told.planner_calls[at]
    if like is not None:
        coder = _scaled(like.usage_coder, coder_calls, _SPREAD[at])
        return coder, _scaled(like.usage_planner, planner_calls, _SPREAD[at])
    answer = _capped(ASSUMED.coder_tokens[at], config)
    prompt = told.coder_prompt_tokens + (0 if at == 0 else answer + _LOG_TOKENS)
    coder = Usage(calls=coder_calls, prompt_tokens=coder_calls * prompt, completion_tokens=coder_calls * answer)
    grown = _REPORT_TOKENS + _NODE_TOKENS * _NODES_PER_ROUND * told.coder_calls
    plan = (told.planner_prompt_tokens or 0) + (0 if at == 0 else grown)
    script = _capped(ASSUMED.planner_tokens[at], config)
    planner = Usage(calls=planner_calls, prompt_tokens=planner_calls * plan, completion_tokens=planner_calls * script)
    return coder, planner


def _scaled(usage: Usage, calls: int, factor: float) -> Usage:
    each = factor * calls / usage.calls if usage.calls else 0.0
    return Usage(
        calls=calls,
        prompt_tokens=round(usage.prompt_tokens * each),
        cached_tokens=round(usage.cached_tokens * each),
        completion_tokens=round(usage.completion_tokens * each),
    )


def _capped(tokens: int, config: RunConfig) -> int:
    return min(tokens, config.model.max_tokens or tokens)


def _cost(usage: Usage, price: Price | None, at: int) -> float | None:
    if price is None:
        return None
    cached = usage.cached_tokens or (round(usage.prompt_tokens * _CACHED_AT_BEST) if at == 0 else 0)
    return price.of(msgspec.structs.replace(usage, cached_tokens=cached))


def _time_s(config: RunConfig, coder: Usage, lineup: Lineup, like: Earlier | None, at: int) -> float:
    rounds = config.search.budget.max_rounds
    if like is not None:
        return _SPREAD[at] * like.round_s * rounds * like.branches / config.search.branches
    is_free = all(offer.price is not None and not offer.price.output_usd for offer in lineup.coders)
    speed = _OFFLINE_TOKENS_PER_S if lineup.coders and is_free else ASSUMED.tokens_per_s[at]
    at_once = min(config.search.branches, config.model.concurrency)
    writing = coder.completion_tokens / speed / at_once
    judging = rounds * ASSUMED.evaluation_s[at] / max(1, min(config.workers.evaluators, config.search.branches))
    return max(writing, judging) if at == 0 else writing + judging


def _same_models(before: Earlier, config: RunConfig) -> bool:
    return before.models == (config.model.name, config.model.planner.name, config.model.coder.name)


def _words(config: RunConfig, like: Earlier | None) -> str:
    if like is not None:
        return f"run {like.run}, of the same task with the same models on this machine, give or take a half"
    cap = config.model.max_tokens
    few, many = (_capped(tokens, config) for tokens in ASSUMED.coder_tokens)
    speed = "{1:g} to {0:g}".format(*ASSUMED.tokens_per_s)
    return (
        f"the first prompts as built; answers of {few:,} to {many:,} tokens{' (their limit)' if cap else ''} "
        f"at {speed} tokens a second, evaluations of {ASSUMED.evaluation_s[0]:g} to {ASSUMED.evaluation_s[1]:g} s"
    )
