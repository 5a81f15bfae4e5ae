"""Which coder model is asked: drawn by weight, or learned from what each brings for its cost."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import mean

import pytest

from actors.planner.core.arms import (
    FADING,
    Arm,
    _beta,
    arms_of,
    choose,
    uniforms,
    with_outcome,
    with_usage,
)
from messages.base import Usage
from messages.models import Choice, Lineup, Offer, Price

CHEAP = Price(input_usd=0.1, cached_usd=0.1, output_usd=0.4)
DEAR = Price(input_usd=1.0, cached_usd=1.0, output_usd=4.0)
ANSWER = Usage(calls=1, prompt_tokens=2000, completion_tokens=1000)


def lineup(first: Price | None, second: Price | None, choice: Choice = "bandit") -> Lineup:
    return Lineup(coders=(Offer(name="first", price=first), Offer(name="second", price=second)), choice=choice)


def learned(found: Lineup, chances: dict[str, float], *, rounds: int, seed: int = 1, batch: int = 1) -> list[str]:
    """Return which models are asked, if each is correct and better with its chance; `batch` asked before any answer."""
    arms, asked, luck = arms_of(found), [], uniforms(seed, "luck", 0)
    for turn in range(rounds // batch):
        names = [choose(found.coders, found, arms, seed=seed, counter=turn * batch + at) for at in range(batch)]
        for name in names:
            won = next(luck) < chances[name]
            arms = with_outcome(with_usage(arms, name, ANSWER), name, correct=won, better=won)
        asked += names
    return asked


def share(asked: list[str], name: str) -> float:
    return Counter(asked)[name] / len(asked)


def test_weights_are_the_shares_of_the_candidates() -> None:
    found = Lineup(coders=(Offer(name="first", weight=3.0), Offer(name="second", weight=1.0)))
    asked = [choose(found.coders, found, (), seed=7, counter=at) for at in range(4000)]
    assert share(asked, "first") == pytest.approx(0.75, abs=0.03)


def test_a_model_of_weight_nothing_is_never_asked() -> None:
    found = Lineup(coders=(Offer(name="first", weight=0.0), Offer(name="second", weight=1.0)))
    assert {choose(found.coders, found, (), seed=7, counter=at) for at in range(200)} == {"second"}


def test_the_same_seed_and_counter_always_draw_the_same_model() -> None:
    found = lineup(None, None)
    arms = (Arm(name="first", gains=3.0, trials=9.0), Arm(name="second", gains=2.0, trials=4.0))
    once = [choose(found.coders, found, arms, seed=3, counter=at) for at in range(50)]
    again = [choose(found.coders, found, arms, seed=3, counter=at) for at in range(50)]
    assert once == again
    assert len(set(once)) == 2


@pytest.mark.parametrize("seed", range(5))
def test_at_equal_cost_the_model_that_is_right_more_often_is_asked_most(seed: int) -> None:
    asked = learned(lineup(None, None), {"first": 0.1, "second": 0.6}, rounds=400, seed=seed)
    assert share(asked[200:], "second") > 0.75


@pytest.mark.parametrize("seed", range(5))
def test_a_model_of_a_tenth_of_the_cost_wins_with_half_the_chance(seed: int) -> None:
    asked = learned(lineup(CHEAP, DEAR), {"first": 0.3, "second": 0.6}, rounds=400, seed=seed)
    assert share(asked[200:], "first") > 0.75


@pytest.mark.parametrize("seed", range(5))
def test_without_prices_tokens_are_the_cost(seed: int) -> None:
    asked = learned(lineup(CHEAP, None), {"first": 0.3, "second": 0.7}, rounds=400, seed=seed)
    assert share(asked[200:], "second") > 0.6


def test_questions_that_are_asked_at_once_are_spread_over_models_that_are_not_known() -> None:
    asked = learned(lineup(None, None), {"first": 0.5, "second": 0.5}, rounds=16, batch=16)
    assert set(asked) == {"first", "second"}


def test_an_old_record_fades_so_that_a_model_gets_another_chance() -> None:
    arms: tuple[Arm, ...] = (Arm(name="first", trials=100.0), Arm(name="second", trials=1.0))
    for _ in range(34):
        arms = with_outcome(arms, "second", correct=False, better=False)
    assert arms[0].trials == pytest.approx(100.0 * FADING**34)
    assert arms[0].trials < 51


def test_a_correct_answer_counts_less_than_one_that_is_better_and_more_than_a_wrong_one() -> None:
    arms = arms_of(lineup(None, None))
    gains = [
        with_outcome(arms, "first", correct=correct, better=better)[0].gains
        for correct, better in ((False, False), (True, False), (True, True))
    ]
    assert gains == sorted(gains)
    assert len(set(gains)) == 3


def test_one_model_has_no_record_and_another_lineup_keeps_what_it_shares() -> None:
    assert arms_of(Lineup(coders=(Offer(name="only"),))) == ()
    known = (Arm(name="second", gains=2.0, trials=3.0),)
    assert arms_of(lineup(None, None), known) == (Arm(name="first"), known[0])


def test_draws_from_a_beta_distribution_have_its_mean() -> None:
    draws = uniforms(1, "test", 0)
    assert mean(_beta(3.0, 9.0, draws) for _ in range(4000)) == pytest.approx(0.25, abs=0.01)
    assert mean(islice(uniforms(2, "test", 0), 4000)) == pytest.approx(0.5, abs=0.02)
