"""What a run is likely to take, said before it starts: ranges, cut off by the budget, and what they rest on."""

from __future__ import annotations

import pytest

from ksearch_async.runs.estimate import Earlier, Estimate, Forecast, estimate
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import RunConfig
from messages.base import Usage
from messages.models import Lineup, Offer, Price

TOLD = Forecast(coder_calls=40, planner_calls=(1, 9), coder_prompt_tokens=2000, planner_prompt_tokens=3000)
CHEAP = Price(input_usd=1.0, cached_usd=0.1, output_usd=4.0)
DEAR = Price(input_usd=10.0, cached_usd=1.0, output_usd=40.0)
PRICED = Lineup(planner=Offer(name="p", price=CHEAP), coders=(Offer(name="c", price=CHEAP),))
BEFORE = Earlier(
    run="before",
    rounds=20,
    branches=4,
    elapsed_s=200.0,
    usage=Usage(),
    usage_planner=Usage(calls=4, prompt_tokens=20_000, completion_tokens=4_000),
    usage_coder=Usage(calls=25, prompt_tokens=100_000, completion_tokens=50_000),
    model="m",
    models=("m", None, None),
)


def config(**flags: object) -> RunConfig:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return resolve_config("relu", environment={}, flags={"model": "m", "base-url": "http://h", **named})


def likely(before: Earlier | None = None, lineup: Lineup = PRICED, **flags: object) -> Estimate:
    return estimate(config(**flags), TOLD, lineup, before)


def test_the_lower_end_is_the_first_prompts_and_short_answers() -> None:
    found = likely()
    assert found.calls == (41, 69)
    assert found.tokens[0] == 40 * (2000 + 1000) + 3000 + 500
    assert found.tokens[1] > 3 * found.tokens[0]
    assert "first prompts as built" in found.rests_on


def test_money_runs_from_the_cheapest_writer_to_the_dearest() -> None:
    alone = likely()
    two = likely(lineup=Lineup(planner=PRICED.planner, coders=(*PRICED.coders, Offer(name="d", price=DEAR))))
    assert alone.cost_usd is not None
    assert two.cost_usd is not None
    assert two.cost_usd[0] == alone.cost_usd[0]
    assert two.cost_usd[1] > 5 * alone.cost_usd[1]


@pytest.mark.parametrize("lineup", [Lineup(), Lineup(planner=PRICED.planner, coders=(Offer(name="c"),))])
def test_money_is_not_known_where_a_price_is_not(lineup: Lineup) -> None:
    assert likely(lineup=lineup).cost_usd is None


def test_limits_cut_the_ranges_off() -> None:
    found = likely(max_calls=50, max_tokens=150_000, max_cost=0.2, max_seconds=60)
    assert found.calls == (41, 50)
    assert found.tokens == (123_500, 150_000)
    assert found.cost_usd is not None
    assert found.cost_usd[1] == 0.2
    assert found.time_s[1] == 60.0


def test_an_earlier_run_with_the_same_models_says_how_long_answers_are() -> None:
    found = likely(BEFORE)
    assert found.rests_on.startswith("run before")
    middle = 40 * 6000 + 4 * 6000
    assert found.tokens[0] < middle < found.tokens[1]
    assert found.time_s == (240.0, 640.0)


def test_an_earlier_run_with_other_models_does_not() -> None:
    found = likely(BEFORE, coder_model="other")
    assert "first prompts as built" in found.rests_on


def test_more_branches_make_it_sooner_and_the_models_pace_slower() -> None:
    one, eight = likely(branches=1), likely(branches=8)
    assert eight.time_s[0] < one.time_s[0]
    assert eight.time_s[1] < one.time_s[1]


def test_a_limit_of_answers_limits_how_long_they_are_taken_to_be() -> None:
    short = likely(max_answer_tokens=1500)
    assert short.tokens[1] < likely().tokens[1]
    assert "1,500 tokens (their limit)" in short.rests_on
