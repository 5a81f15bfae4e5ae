"""Models of a configuration: how each is opened, named and charged, and what its endpoint is known to support.

One small JSON file per address and model, without keys. It can be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from actors.llm.base import Ensemble, Model
from actors.llm.features import Capabilities, Features, Sampling
from actors.llm.limits import Gate, LimitedModel, Terms
from ksearch_async.errors import refusal
from ksearch_async.follow.logs import keep_secret
from ksearch_async.settings.prices import FREE, Prices, read_prices
from ksearch_async.settings.run_config import (
    API_KEY_VARIABLES,
    Dialect,
    ModelSettings,
    RunConfig,
    Writer,
    planner_settings,
    writers,
)
from messages.models import Lineup, Offer, Price

_CLOSE_TIMEOUT_S = 5.0


def dialect_of(settings: ModelSettings, environment: Mapping[str, str]) -> Dialect:
    """Return which dialect the settings ask for. A key alone asks for nothing: it may be there for other programs."""
    if settings.kind == "replay" or (settings.kind == "auto" and settings.replay is not None):
        if settings.replay is None:
            raise refusal("a recorded run is to answer, but none is named", "say which: --replay RUN")
        return "replay"
    if settings.replay is not None:
        raise refusal(f"a recorded run cannot answer with --model-kind {settings.kind}", "leave out one of the two")
    if settings.kind in ("manual", "offline"):
        return settings.kind
    if settings.kind == "auto" and settings.name is None and settings.base_url is None:
        return "offline"
    _check_endpoint(settings, environment)
    if settings.kind == "auto":
        known = recall(environment, settings)
        return known.capabilities.dialects[0] if known is not None and known.capabilities.dialects else "chat"
    return "responses" if settings.kind == "responses" else "chat"


def _check_endpoint(settings: ModelSettings, environment: Mapping[str, str]) -> None:
    if settings.mistakes:
        raise refusal(
            "mistakes are for the built-in rules: an endpoint's model makes its own", "leave out --mistakes or --model"
        )
    if settings.name is None:
        raise refusal("an endpoint is asked for, but no model is named", "say which: --model NAME")
    if settings.base_url is not None:
        _check_address(settings.base_url)
    key = api_key(environment, settings.key_variable)
    if settings.base_url is None and not key:
        raise refusal(
            f"model {settings.name!r} needs a key or an address",
            f"set {' or '.join(API_KEY_VARIABLES)} in the environment, or give --base-url; "
            "--model-kind offline uses the built-in rules",
        )
    if settings.kind == "responses" and settings.seed is not None:
        raise refusal("the Responses API has no seed", "leave out --llm-seed, or use --model-kind chat")


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        _ = parts.port  # looked at, it says what is wrong with it
    except ValueError as error:
        raise refusal(f"the endpoint's address cannot be read: {error}") from error
    if "@" in parts.netloc:
        raise refusal(
            "the endpoint's address holds a user name or a password, and addresses are saved with the run",
            f"leave it out of the address, and set {' or '.join(API_KEY_VARIABLES)} in the environment",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, base_url)):
        raise refusal(f"{base_url!r} is no address of an endpoint", "an address begins with http:// or https://")


def writer_dialect(settings: ModelSettings, environment: Mapping[str, str]) -> Dialect:
    """Return in which dialect who writes is asked, the first if there are several. All are checked, who plans too."""
    dialect_of(planner_settings(settings, environment), environment)
    dialects = [dialect_of(writer.settings, environment) for writer in writers(settings, environment)]
    return dialects[0]


def model_words(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    """Say in words who plans and writes."""
    plans, writes = planner_settings(settings, environment), writers(settings, environment)
    planner = _words(plans, environment)
    coders = [_words(writer.settings, environment) for writer in writes]
    if coders == [planner]:
        return planner
    return f"{planner} plans; {', '.join(_shared(writes, coders, settings))} {'write' if coders[1:] else 'writes'}"


def _shared(writes: tuple[Writer, ...], words: list[str], settings: ModelSettings) -> list[str]:
    if len(words) == 1:
        return words
    if settings.coder.choice == "bandit":
        return [*words[:-1], f"{words[-1]} (by what each brings for its cost)"]
    total = sum(writer.weight for writer in writes)
    return [f"{said} ({writer.weight / total:.0%})" for writer, said in zip(writes, words, strict=True)]


def _words(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    match dialect_of(settings, environment):
        case "offline":
            spoiled = f", {settings.mistakes:.0%} of answers spoiled on purpose" if settings.mistakes else ""
            return f"offline: built-in rules, not a language model{spoiled}"
        case "manual":
            return "manual: answers are files in the run's folder, prompts/"
        case "replay":
            else_asked = f"; what it was not asked goes to {_words(without_replay(settings), environment)}"
            return f"replay of run {settings.replay}{else_asked if settings.replay_misses == 'ask' else ''}"
        case "chat" | "responses" as dialect:
            how = " by the Responses API" if dialect == "responses" else ""
            where = settings.base_url or "the default endpoint of the openai package"
            return f"{settings.name} at {where}{how}{known_words(settings, recall(environment, settings))}"


def without_replay(settings: ModelSettings) -> ModelSettings:
    """Return who is asked what a recorded run was not asked."""
    kind = "auto" if settings.kind == "replay" else settings.kind
    return msgspec.structs.replace(settings, kind=kind, replay=None)


def rules_answer_misses(settings: ModelSettings, environment: Mapping[str, str]) -> bool:
    """Say whether a recorded run answers, and the built-in rules what it was not asked, since nobody else is named."""
    asked = [planner_settings(settings, environment), *(one.settings for one in writers(settings, environment))]
    return any(
        dialect_of(each, environment) == "replay"
        and each.replay_misses == "ask"
        and dialect_of(without_replay(each), environment) == "offline"
        for each in asked
    )


def model_name(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    """Name the model for all processes on the bus, without the endpoint's address, which stays private."""
    match dialect_of(settings, environment):
        case "offline":
            return "built-in rules"
        case "manual" | "replay" as dialect:
            return dialect
        case "chat" | "responses":
            return settings.name or ""


def writer_names(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    """Name who writes, as `model_name` does."""
    return ", ".join(writer_name(writer, environment) for writer in writers(settings, environment))


def writer_name(writer: Writer, environment: Mapping[str, str]) -> str:
    """Name one who writes: as it is listed, where several are."""
    return writer.settings.name or model_name(writer.settings, environment)


@asynccontextmanager
async def open_model(
    settings: ModelSettings,
    environment: Mapping[str, str],
    *,
    seed: int,
    latency_s: float = 0.0,
    folder: Path | None = None,
) -> AsyncIterator[Model]:
    """Make the model, and close its connections afterwards.

    Args:
        settings: which.
        environment: where keys are looked for.
        seed: of the built-in rules.
        latency_s: how long the built-in rules take for an answer.
        folder: the run's; recorded runs are looked for beside it, prompts for people lie in it. None: there is none.
    """
    model = await anyio.to_thread.run_sync(partial(_ensemble, settings, environment, seed, latency_s, folder))
    try:
        yield model
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await model.aclose()


def _ensemble(
    settings: ModelSettings, environment: Mapping[str, str], seed: int, latency_s: float, folder: Path | None
) -> Model:
    """Make who plans and who writes; settings that are the same are one model, and endpoints have one gate each."""
    plans, writes = planner_settings(settings, environment), writers(settings, environment)
    gates = gates_of([plans, *(writer.settings for writer in writes)], environment)
    made: list[tuple[ModelSettings, Model]] = []
    for each in (plans, *(writer.settings for writer in writes)):
        if all(each != known for known, _ in made):
            model = _made(each, environment, seed, latency_s, folder)
            made.append((each, _limited(model, each, gates, environment)))

    def model_of(wanted: ModelSettings) -> Model:
        return next(model for known, model in made if known == wanted)

    coders = {writer_name(writer, environment): model_of(writer.settings) for writer in writes}
    return Ensemble(model_of(plans), coders)


def gates_of(asked: Sequence[ModelSettings], environment: Mapping[str, str]) -> dict[tuple[str, str], Gate]:
    """Return a gate for each endpoint, by address and key: of those that share it the smallest limits count."""
    shares: dict[tuple[str, str], list[ModelSettings]] = {}
    for settings in asked:
        if dialect_of(settings, environment) in ("chat", "responses"):
            shares.setdefault(_place(settings, environment), []).append(settings)
    return {place: Gate(_terms(sharing)) for place, sharing in shares.items()}


def _terms(sharing: list[ModelSettings]) -> Terms:
    return Terms(
        in_flight=min(settings.concurrency for settings in sharing),
        requests_per_minute=min(
            (each.requests_per_minute for each in sharing if each.requests_per_minute), default=None
        ),
        tokens_per_minute=min((each.tokens_per_minute for each in sharing if each.tokens_per_minute), default=None),
    )


def _place(settings: ModelSettings, environment: Mapping[str, str]) -> tuple[str, str]:
    return settings.base_url or "", api_key(environment, settings.key_variable)


def _limited(
    model: Model, settings: ModelSettings, gates: Mapping[tuple[str, str], Gate], environment: Mapping[str, str]
) -> Model:
    if dialect_of(settings, environment) not in ("chat", "responses"):
        return model
    return LimitedModel(model, gates[_place(settings, environment)])


def _made(
    settings: ModelSettings, environment: Mapping[str, str], seed: int, latency_s: float, folder: Path | None
) -> Model:
    """Make a model. Each dialect is loaded only where it is used."""
    match dialect_of(settings, environment):
        case "offline":
            from actors.llm.offline import OfflineModel  # noqa: PLC0415

            return OfflineModel(seed=seed, latency_s=latency_s, mistakes=settings.mistakes)
        case "replay":
            from actors.llm.replay import ReplayModel  # noqa: PLC0415
            from ksearch_async.runs.replay import read_recording  # noqa: PLC0415

            recording = read_recording(settings.replay or "", folder.parent if folder else Path())
            asks = settings.replay_misses == "ask"
            beyond = _made(without_replay(settings), environment, seed, latency_s, folder) if asks else None
            return ReplayModel(recording, beyond=beyond)
        case "manual":
            from actors.llm.manual import ManualModel  # noqa: PLC0415

            if folder is None:
                raise refusal("answers by hand are for a run that has its folder here", "name a model: --model NAME")
            return ManualModel(folder / "prompts")
        case "chat" | "responses" as dialect:
            return _endpoint(dialect, settings, environment)


def _endpoint(dialect: Literal["chat", "responses"], settings: ModelSettings, environment: Mapping[str, str]) -> Model:
    """Make a model behind an endpoint; openai takes a third of a second to import."""
    from actors.llm.chat import ChatModel  # noqa: PLC0415
    from actors.llm.responses import ResponsesModel  # noqa: PLC0415

    known = recall(environment, settings)
    made = ResponsesModel if dialect == "responses" else ChatModel
    return made(
        model=settings.name or "",
        base_url=settings.base_url,
        api_key=api_key(environment, settings.key_variable),
        concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
        sampling=sampling_of(settings, known),
        features=features_of(settings, known),
    )


def api_key(environment: Mapping[str, str], variable: str | None = None) -> str:
    """Return the key for the endpoint, or nothing; if a variable is named, it is that one's.

    White space around it, such as the line end of a file that was read, is left out.
    """
    names = API_KEY_VARIABLES if variable is None else (variable,)
    keys = {name: environment.get(name, "").strip() for name in names}
    if variable is not None and not keys[variable]:
        raise refusal(f"the key is to be in {variable!r}, and the environment has no such variable", "set it")
    name, key = next(((name, key) for name, key in keys.items() if key), ("", ""))
    keep_secret(key)
    odd = next((place for place, letter in enumerate(key) if not (letter.isascii() and letter.isprintable())), None)
    if odd is not None:
        raise refusal(f"no key holds a {key[odd]!a}, as {name} does (character {odd + 1})", "set it anew")
    return key


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
    """Refuse a selection rule where there is nothing to select: its user would believe in an effect."""
    if lineup.choice == "bandit" and len(lineup.coders) < 2:
        one = f": only {lineup.coders[0].name!r} writes" if lineup.coders else ": none is named for the coders"
        raise refusal(
            f"--coder-choice bandit needs several models that write{one}",
            "name them: --coder-model SMALL,LARGE, or [[model.coder.members]] in the configuration file",
        )


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The finding and its time."""

    capabilities: Capabilities
    probed_on: str
    """Day, ISO 8601, UTC."""


def cache_file(environment: Mapping[str, str], *, model: str, base_url: str | None) -> Path:
    """Return where an endpoint's capabilities lie, if they were probed."""
    given = environment.get("XDG_CACHE_HOME")
    folder = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    name = blake2b(f"{(base_url or '').rstrip('/')}|{model}".encode(), digest_size=8).hexdigest()
    return folder / "ksearch" / "endpoints" / f"{name}.json"


def remember(environment: Mapping[str, str], found: Remembered) -> Path:
    """Write down what was found; return where."""
    capabilities = found.capabilities
    path = cache_file(environment, model=capabilities.model, base_url=capabilities.base_url)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        fresh.replace(path)
    except OSError as error:
        raise refusal(
            f"cannot write {str(path)!r}: {error.strerror}", "set XDG_CACHE_HOME to a folder of yours"
        ) from error
    return path


def recall(environment: Mapping[str, str], settings: ModelSettings) -> Remembered | None:
    """Return what is known of the endpoint that settings mean; none if it was not probed, or the file is of no use."""
    path = cache_file(environment, model=settings.name or "", base_url=settings.base_url)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError):
        return None


def features_of(settings: ModelSettings, known: Remembered | None) -> Features:
    """Return which of the API's features are used: those that the settings say, else those that were found."""
    found = known.capabilities.features if known is not None else Features()
    structured = found.structured if settings.structured == "auto" else settings.structured == "on"
    return msgspec.structs.replace(found, structured=structured, streams=found.streams and settings.early_stop)


def sampling_of(settings: ModelSettings, known: Remembered | None) -> Sampling:
    """Return what is sent along: what the settings say, but for what the endpoint does not take."""
    refused = _left_out(settings, known)
    return Sampling(
        temperature=None if "temperature" in refused else settings.temperature,
        max_tokens=settings.max_tokens,
        reasoning_effort=None if "reasoning_effort" in refused else settings.reasoning_effort,
        seed=None if "seed" in refused else settings.seed,
    )


def known_words(settings: ModelSettings, known: Remembered | None) -> str:
    """Say what of a probe a run goes by; empty if nothing is known."""
    if known is None:
        return ""
    features = features_of(settings, known)
    said = ["structured output" if features.structured else "no structured output"]
    said += [] if features.streams or not settings.early_stop else ["no streams"]
    said += [f"{name} not sent: it refuses it" for name in _left_out(settings, known)]
    return f" (probed on {known.probed_on}: {', '.join(said)})"


def _left_out(settings: ModelSettings, known: Remembered | None) -> tuple[str, ...]:
    given = {
        "temperature": settings.temperature,
        "reasoning_effort": settings.reasoning_effort,
        "seed": settings.seed,
    }
    refused = known.capabilities.refused if known is not None else ()
    return tuple(name for name, value in given.items() if value is not None and name in refused)
