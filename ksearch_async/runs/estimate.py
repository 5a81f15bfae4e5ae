"""Estimates of calls, tokens, money and time before a run starts, as ranges.

The first prompts are really built. How they grow, how long answers get and how fast they arrive is taken from an
earlier run of the same task with the same models. Without one, the constants below give wide ranges. The budget's
limits cut the ranges off.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TypeAlias

import msgspec

from actors.coder.prompts import request_for
from actors.llm.base import Request, estimated_tokens
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.prompts import plan_request
from ksearch_async.runs.folder import list_runs, read_run
from ksearch_async.settings.run_config import RunConfig, load_config
from messages.base import BusError, ConfigError, Usage
from messages.commands import WriteCandidate
from messages.events import RunStarted
from messages.models import Lineup, Price
from messages.settings import SearchSettings
from messages.tasks import Action, Target, TaskSpec

Range: TypeAlias = tuple[float, float]
"""Lower and upper end."""


_CODER_TOKENS = (1_000, 8_000)
"""Completion tokens: a short kernel, or a long one after some reasoning."""
_PLANNER_TOKENS = (500, 4_000)
_TOKENS_PER_S = (100.0, 20.0)
"""Tokens per second of answers."""
_EVALUATION_S = (2.0, 20.0)
"""Seconds to build, check and time one candidate."""
_REPEATS = 1.5
"""Most model calls per evaluation: some answers repeat a candidate, or contain none."""
_LOG_TOKENS = 1_000
"""Tokens of failure logs in a coder's prompt."""
_NODE_TOKENS, _NODES_PER_ROUND, _REPORT_TOKENS = 40, 2, 1_500
"""Growth of a planner's prompt in tokens: a line per action, and reports of new results."""
_CACHED_AT_BEST = 0.5
"""Largest share of prompts that the endpoint may have in its prefix cache; the smallest is none."""
_OFFLINE_TOKENS_PER_S = 1e6
_SPREAD = (0.6, 1.6)
"""Range of the ratio between a run and an earlier one like it."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of what a run takes; null: not known."""

    calls: tuple[int, int]
    tokens: tuple[int, int]
    cost_usd: Range | None
    time_s: Range
    rests_on: str
    """Source of the estimate, in words."""


def estimate(config: RunConfig, told: Forecast, lineup: Lineup, before: Earlier | None) -> Estimate:
    """Estimate what a run takes."""
    named = (config.model.name, config.model.planner.name, config.model.coder.name)
    like = before if before is not None and before.models == named else None
    budget = config.search.budget
    coders, planners = zip(*(_usages(config, told, like, at) for at in (0, 1)), strict=True)
    usages = [coder.plus(planner) for coder, planner in zip(coders, planners, strict=True)]
    costs = [_costs(coders[at], planners[at], lineup, at) for at in (0, 1)]
    times = [_time_s(config, coders[at], lineup, like, at) for at in (0, 1)]
    low_usd, high_usd = costs
    cost_usd = None
    if low_usd is not None and high_usd is not None:
        limit = budget.max_cost_usd or high_usd
        cost_usd = (round(min(low_usd, limit), 4), round(min(high_usd, limit), 4))
    calls = [min(usage.calls, budget.max_calls or usage.calls) for usage in usages]
    tokens = [min(usage.tokens, budget.max_tokens or usage.tokens) for usage in usages]
    time_s = [round(min(seconds, budget.wall_clock_s or seconds), 1) for seconds in times]
    return Estimate(
        calls=(calls[0], calls[1]),
        tokens=(tokens[0], tokens[1]),
        cost_usd=cost_usd,
        time_s=(time_s[0], time_s[1]),
        rests_on=_words(config, like),
    )


def _costs(coder: Usage, planner: Usage, lineup: Lineup, at: int) -> float | None:
    """Return the costs of coders and planner, at the lower or the upper end; None if a price is not known."""
    planning = _cost(planner, lineup.planner.price, at)
    writing = [_cost(coder, price, at) for price in [offer.price for offer in lineup.coders] or [None]]
    known = [cost for cost in writing if cost is not None]
    if planning is None or len(known) < len(writing):
        return None
    return planning + (max(known) if at else min(known))


def _usages(config: RunConfig, told: Forecast, like: Earlier | None, at: int) -> tuple[Usage, Usage]:
    coder_calls = round(told.coder_calls * (1.0, _REPEATS)[at])
    planner_calls = told.planner_calls[at]
    if like is not None:
        coder = _scaled(like.usage_coder, coder_calls, _SPREAD[at])
        return coder, _scaled(like.usage_planner, planner_calls, _SPREAD[at])
    answer = _capped(_CODER_TOKENS[at], config)
    prompt = told.coder_prompt_tokens + (0 if at == 0 else answer + _LOG_TOKENS)
    coder = Usage(calls=coder_calls, prompt_tokens=coder_calls * prompt, completion_tokens=coder_calls * answer)
    grown = _REPORT_TOKENS + _NODE_TOKENS * _NODES_PER_ROUND * told.coder_calls
    plan = (told.planner_prompt_tokens or 0) + (0 if at == 0 else grown)
    script = _capped(_PLANNER_TOKENS[at], config)
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
    speed = _OFFLINE_TOKENS_PER_S if lineup.coders and is_free else _TOKENS_PER_S[at]
    at_once = min(config.search.branches, config.model.concurrency)
    writing = coder.completion_tokens / speed / at_once
    judging = rounds * _EVALUATION_S[at] / max(1, min(config.workers.evaluators, config.search.branches))
    return max(writing, judging) if at == 0 else writing + judging


def _words(config: RunConfig, like: Earlier | None) -> str:
    if like is not None:
        return f"run {like.run}, of the same task with the same models on this machine, give or take a half"
    cap = config.model.max_tokens
    few, many = (_capped(tokens, config) for tokens in _CODER_TOKENS)
    speed = "{1:g} to {0:g}".format(*_TOKENS_PER_S)
    return (
        f"the first prompts as built; answers of {few:,} to {many:,} tokens{' (their limit)' if cap else ''} "
        f"at {speed} tokens a second, evaluations of {_EVALUATION_S[0]:g} to {_EVALUATION_S[1]:g} s"
    )


_LOOKED_AT = 20
"""Number of runs of a folder that are considered, the latest first."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Calls and prompts of a run that is not started."""

    coder_calls: int
    """Fewest coder calls: one per evaluation. Answers that repeat a candidate or contain none are added to it."""
    planner_calls: tuple[int, int]
    """Range of planner calls: one at the end of each branch, which takes about as many attempts as the stagnation
    window."""
    coder_prompt_tokens: int
    """Tokens of the first call, at four characters each. Later prompts also contain code and logs of failures."""
    planner_prompt_tokens: int | None
    """Tokens of the first call; null if the planner's model is never called."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """Effort of an earlier run of the same task on a machine like this."""

    run: str
    rounds: int
    branches: int
    elapsed_s: float
    usage: Usage
    usage_planner: Usage = Usage()
    usage_coder: Usage = Usage()
    model: str | None
    """Null: the built-in rules."""
    models: tuple[str | None, str | None, str | None] = (None, None, None)
    """Names of the models: for both roles, for the planner, for the coder."""

    @property
    def round_s(self) -> float:
        """Wall-clock per round, models and evaluations together."""
        return self.elapsed_s / self.rounds


def forecast(started: RunStarted) -> Forecast:
    """Predict the calls and prompts of a run that starts like this. Calls no model."""
    settings = started.settings
    state = SearchState()
    for fact in decide(state, started):
        state = evolve(state, fact)
    plan = plan_request(state, state.plan, started.description) if state.plan else None
    budget = settings.budget
    most = [limit for limit in (budget.max_rounds, budget.max_calls) if limit is not None]
    return Forecast(
        coder_calls=min(most),
        planner_calls=_planner_calls(settings, min(most)),
        coder_prompt_tokens=_tokens(request_for(_first_write(started))),
        planner_prompt_tokens=_tokens(plan) if plan else None,
    )


def earlier_run(runs_dir: Path, task: TaskSpec, target: Target) -> Earlier | None:
    """Return the latest run of this task on a machine like this; unreadable runs are skipped."""
    for folder in list_runs(runs_dir)[:_LOOKED_AT]:
        try:
            config, chronicle = load_config(folder.config), read_run(folder)
        except (BusError, ConfigError):
            continue
        started, state = chronicle.started, chronicle.state
        same = started and (started.task.task_id, started.target.fingerprint) == (task.task_id, target.fingerprint)
        if same and state.rounds:
            return Earlier(
                run=folder.run_id,
                rounds=state.rounds,
                branches=state.settings.branches,
                elapsed_s=chronicle.elapsed_s,
                usage=state.usage,
                usage_planner=state.usage_planner,
                usage_coder=state.usage_coder,
                model=config.model.name,
                models=(config.model.name, config.model.planner.name, config.model.coder.name),
            )
    return None


def _planner_calls(settings: SearchSettings, rounds: int) -> tuple[int, int]:
    match settings.world_model:
        case "off":
            return 0, 0
        case "frozen":
            return 1, 1 + settings.refusals
        case "evolving":
            return 1, 1 + ceil(rounds / settings.stagnation_window)


def _first_write(started: RunStarted) -> WriteCandidate:
    description = started.description
    return WriteCandidate(
        job_id="forecast",
        run_id="forecast",
        branch_id="b1",
        language=description.language,
        mode="apply",
        target=started.target,
        edit_format=started.lineup.coder("").edit_format or started.settings.edit_format,
        task=description,
        action=Action(node_id="n1", title="", description="", difficulty=1),
    )


def _tokens(request: Request) -> int:
    return estimated_tokens(request.system) + estimated_tokens(request.prompt)
