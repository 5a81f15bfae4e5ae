"""Which model a configuration means, said in words and made. The only place that reads keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from actors.llm.base import Model
from actors.llm.ensemble import Ensemble
from actors.llm.limits import Gate, LimitedModel, Terms
from ksearch_async.capabilities import features_of, known_words, recall, sampling_of
from ksearch_async.config import API_KEY_VARIABLES, ModelSettings
from ksearch_async.refusals import refusal
from ksearch_async.role_settings import Writer, planner_settings, writers
from ksearch_async.secrets import keep_secret

_CLOSE_TIMEOUT_S = 5.0

Dialect: TypeAlias = Literal["offline", "chat", "responses", "replay", "manual"]


def dialect_of(settings: ModelSettings, environment: Mapping[str, str]) -> Dialect:
    """Return which dialect the settings ask for. A key alone asks for nothing: it may be there for other programs.

    Raises:
        ConfigError: they ask for an endpoint and leave out what it takes, or for two things at once.
    """
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
    """Return in which dialect who writes is asked, the first if there are several. All are checked, who plans too.

    Raises:
        ConfigError: as `dialect_of`.
    """
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
    """Add to the words for several models how their work is shared."""
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
            return "manual: whoever writes the answer files in the run's folder, prompts/"
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
    """Name the model for everybody on the bus: without the endpoint's address, which is nobody else's business."""
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

    Raises:
        ConfigError: no such model can be had here.
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
            from ksearch_async.recordings import read_recording  # noqa: PLC0415

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

    Raises:
        ConfigError: a variable is named and not set, or a key holds what no header may.
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
