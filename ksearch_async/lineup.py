"""Which models a run asks and what they charge, as its first event says it; and whether that does for its budget."""

from __future__ import annotations

from collections.abc import Mapping

from ksearch_async.config import ModelSettings, RunConfig
from ksearch_async.models import dialect_of, model_name, without_replay, writer_name
from ksearch_async.prices import FREE, Prices, read_prices
from ksearch_async.refusals import refusal
from ksearch_async.role_settings import planner_settings, writers
from messages.models import Lineup, Offer, Price


def lineup_of(config: RunConfig, environment: Mapping[str, str], *, writes_here: bool = True) -> Lineup:
    """Return who plans and who writes.

    Args:
        config: what the run is started with.
        environment: where keys and the user's own prices are looked for.
        writes_here: coders are in this process; if not, only those that are named for them are known.

    Raises:
        ConfigError: the models cannot be used, one of several is to be chosen and there are no several, or a budget
            in money is set and a price is not known.
    """
    model = config.model
    prices = read_prices(model.prices, environment)
    planner = planner_settings(model, environment)
    found = Lineup(
        planner=Offer(name=model_name(planner, environment), price=price_of(planner, prices, environment)),
        coders=_coders(model, prices, environment) if writes_here or _names_coders(model) else (),
        choice=model.coder.choice,
    )
    _check_choice(found)
    if model.coder.edit_format is not None and not found.coders:
        raise refusal(
            "[model.coder] has an edit_format, and the coders are other processes",
            "--edit-format says it for all; or name the models as the coders have them: --coder-model NAME",
        )
    if config.search.budget.max_cost_usd is not None:
        _check_prices(found, writes_here=writes_here)
    return found


def price_of(settings: ModelSettings, prices: Prices, environment: Mapping[str, str]) -> Price | None:
    """Return what a model costs: nothing if it is no endpoint's; None if that is not known."""
    match dialect_of(settings, environment):
        case "offline" | "manual":
            return FREE
        case "replay":
            asks = settings.replay_misses == "ask"
            return price_of(without_replay(settings), prices, environment) if asks else FREE
        case "chat" | "responses":
            return prices.of(settings.name or "", settings.base_url)


def _names_coders(model: ModelSettings) -> bool:
    return model.coder.name is not None or bool(model.coder.members)


def _coders(model: ModelSettings, prices: Prices, environment: Mapping[str, str]) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            name=writer_name(writer, environment),
            price=price_of(writer.settings, prices, environment),
            weight=writer.weight,
            tier=writer.tier,
            edit_format=writer.edit_format,
        )
        for writer in writers(model, environment)
    )


def _check_prices(lineup: Lineup, *, writes_here: bool) -> None:
    if not lineup.coders and not writes_here:
        raise refusal(
            "--max-cost needs to know which models write, and the coders are other processes",
            "name them as the coders have them: --coder-model NAME",
        )
    offers = (lineup.planner, *lineup.coders)
    unknown = list(dict.fromkeys(offer.name for offer in offers if offer.price is None))
    if not unknown:
        return
    names = ", ".join(map(repr, unknown))
    those = f"that of model {names} is not known at its endpoint"
    if len(unknown) > 1:
        those = f"those of models {names} are not known at their endpoints"
    listed = ", ".join(f'"{name}"' for name in unknown)
    raise refusal(
        f"--max-cost needs prices, and {those}",
        "say it in a file, --prices FILE, or in ~/.config/ksearch/prices.toml: [[price]] with "
        f"models = [{listed}], input_usd and output_usd per million tokens; or use --max-tokens",
    )


def _check_choice(lineup: Lineup) -> None:
    """Refuse a way to choose where there is nothing to choose: whoever set it believes that there is."""
    if lineup.choice == "bandit" and len(lineup.coders) < 2:
        one = f": only {lineup.coders[0].name!r} writes" if lineup.coders else ": none is named for the coders"
        raise refusal(
            f"--coder-choice bandit needs several models that write{one}",
            "name them: --coder-model SMALL,LARGE, or [[model.coder.members]] in the configuration file",
        )
