"""What models charge, and whether that does for a budget in money."""

from __future__ import annotations

from pathlib import Path

import pytest

from ksearch_async.settings.models import lineup_of
from ksearch_async.settings.prices import read_prices
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import RunConfig
from messages.base import ConfigError, Usage
from messages.models import Price

OWN = """
[[price]]
models = ["mine", "gpt-5"]
input_usd = 2
output_usd = 3.5
dated = "2026-01-31"
source = "a contract"
"""


def own(tmp_path: Path, text: str = OWN) -> dict[str, str]:
    """Return the environment of a user who has a table of prices."""
    file = tmp_path / "ksearch" / "prices.toml"
    file.parent.mkdir()
    file.write_text(text)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def config(environment: dict[str, str] | None = None, **flags: object) -> RunConfig:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return resolve_config("relu", environment=environment or {}, flags=named)


def test_cached_tokens_cost_their_own_price() -> None:
    usage = Usage(calls=3, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=200_000)
    price = Price(input_usd=2.0, cached_usd=0.5, output_usd=10.0)
    assert price.of(usage) == pytest.approx(1.2 + 0.2 + 2.0)


def test_every_shipped_price_has_a_date_and_a_source() -> None:
    (shipped,) = read_prices(None, {"XDG_CONFIG_HOME": "/nowhere"}).tables
    assert shipped.price
    for entry in shipped.price:
        assert entry.dated
        assert entry.source
        assert entry.endpoint


def test_a_shipped_price_holds_for_its_endpoint_only_and_for_dated_names() -> None:
    prices = read_prices(None, {"XDG_CONFIG_HOME": "/nowhere"})
    assert prices.of("gpt-5", None) == prices.of("gpt-5-2025-08-07", "https://api.openai.com/v1")
    assert prices.of("gpt-5", None) is not None
    assert prices.of("gpt-5", "http://127.0.0.1:8000/v1") is None
    assert prices.of("gpt-5-unheard-of", None) is None


def test_the_users_prices_go_before_the_shipped_ones_and_a_named_file_before_both(tmp_path: Path) -> None:
    environment = own(tmp_path)
    found = read_prices(None, environment).of("gpt-5", None)
    assert found == Price(input_usd=2.0, cached_usd=2.0, output_usd=3.5, dated="2026-01-31", source="a contract")
    named = tmp_path / "named.toml"
    named.write_text('[[price]]\nmodels = ["gpt-5"]\ninput_usd = 7\noutput_usd = 8\n')
    other = read_prices(str(named), environment).of("gpt-5", None)
    assert other is not None
    assert other.input_usd == 7.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[price]]\nmodels = ['m']\n", "no table of prices"),
        ("[[price]]\nmodels = ['m']\ninput_usd = -1\noutput_usd = 1\n", "no table of prices"),
        ("[[price]]\nmodels = ['m']\ninput_usd = 1\noutput_usd = 1\nper = 'day'\n", "unknown field"),
        ("price = [", "is not TOML"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_prices(None, own(tmp_path, text))


def test_a_line_up_says_who_is_asked_and_what_that_costs(tmp_path: Path) -> None:
    environment = own(tmp_path)
    found = lineup_of(
        config(model="mine", coder_model="gpt-5=3,other", base_url="http://h/v1", coder_choice="bandit"), environment
    )
    assert found.planner.name == "mine"
    assert [(offer.name, offer.weight, offer.price is not None) for offer in found.coders] == [
        ("gpt-5", 3.0, True),
        ("other", 1.0, False),
    ]
    assert found.choice == "bandit"


def test_a_budget_in_money_needs_a_price_for_each_model(tmp_path: Path) -> None:
    environment = own(tmp_path)
    known = config(model="mine", base_url="http://h/v1", max_cost=5.0)
    assert lineup_of(known, environment).planner.price is not None
    unknown = config(model="mine", coder_model="other", base_url="http://h/v1", max_cost=5.0)
    with pytest.raises(ConfigError, match="that of model 'other' is not known") as caught:
        lineup_of(unknown, environment)
    assert "--prices FILE" in str(caught.value.__notes__)
    elsewhere = config(model="mine", base_url="http://h/v1", max_cost=5.0)
    with pytest.raises(ConfigError, match="which models write"):
        lineup_of(elsewhere, environment, writes_here=False)


def test_all_models_without_a_price_are_named_at_once(tmp_path: Path) -> None:
    several = config(model="mine", coder_model="other,more,mine", base_url="http://h/v1", max_cost=5.0)
    with pytest.raises(ConfigError, match="those of models 'other', 'more' are not known") as caught:
        lineup_of(several, own(tmp_path))
    assert 'models = ["other", "more"]' in str(caught.value.__notes__)


@pytest.mark.parametrize(
    ("coder_model", "writes_here", "said"),
    [("small", True, "only 'small' writes"), ("small=3", True, "only 'small' writes"), (None, False, "none is named")],
)
def test_a_bandit_that_has_nothing_to_choose_is_refused(coder_model: str | None, writes_here: bool, said: str) -> None:
    alone = config(model="m", coder_model=coder_model, base_url="http://h/v1", coder_choice="bandit")
    with pytest.raises(ConfigError, match=f"needs several models that write: {said}") as caught:
        lineup_of(alone, {}, writes_here=writes_here)
    assert "--coder-model SMALL,LARGE" in str(caught.value.__notes__)


def test_the_built_in_rules_cost_nothing() -> None:
    found = lineup_of(config(max_cost=1.0), {})
    assert [offer.price.of(Usage(calls=1, prompt_tokens=9)) for offer in found.coders if offer.price] == [0.0]


def test_coders_of_other_processes_are_not_known_unless_they_are_named() -> None:
    assert lineup_of(config(model="m", base_url="http://h/v1"), {}, writes_here=False).coders == ()
    named = lineup_of(config(model="m", coder_model="a,b", base_url="http://h/v1"), {}, writes_here=False)
    assert [offer.name for offer in named.coders] == ["a", "b"]
