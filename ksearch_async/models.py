"""Which model a configuration means, said in words and made. The only place that reads keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

import anyio

from actors.llm.base import Model
from ksearch_async.config import API_KEY_VARIABLES, ModelSettings
from ksearch_async.refusals import refusal

_CLOSE_TIMEOUT_S = 5.0

Dialect = Literal["offline", "chat"]


def dialect_of(settings: ModelSettings, environment: Mapping[str, str]) -> Dialect:
    """Return which dialect the settings ask for. A key alone asks for nothing: it may be there for other programs.

    Raises:
        ConfigError: they ask for an endpoint and leave out what it takes.
    """
    if settings.kind == "offline" or (settings.kind == "auto" and settings.name is None and settings.base_url is None):
        return "offline"
    if settings.mistakes:
        raise refusal(
            "mistakes are for the built-in rules: an endpoint's model makes its own", "leave out --mistakes or --model"
        )
    if settings.name is None:
        raise refusal("an endpoint is asked for, but no model is named", "say which: --model NAME")
    if settings.base_url is not None:
        _check_address(settings.base_url)
    if settings.base_url is None and not api_key(environment):
        raise refusal(
            f"model {settings.name!r} needs a key or an address",
            f"set {' or '.join(API_KEY_VARIABLES)} in the environment, or give --base-url; "
            "--model-kind offline uses the built-in rules",
        )
    return "chat"


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
    except ValueError as error:
        raise refusal(f"the endpoint's address cannot be read: {error}") from error
    if "@" in parts.netloc:
        raise refusal(
            "the endpoint's address holds a user name or a password, and addresses are saved with the run",
            f"leave it out of the address, and set {' or '.join(API_KEY_VARIABLES)} in the environment",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise refusal(f"{base_url!r} is no address of an endpoint", "an address begins with http:// or https://")


def model_words(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    """Say in words who plans and writes."""
    if dialect_of(settings, environment) == "offline":
        spoiled = f", {settings.mistakes:.0%} of answers spoiled on purpose" if settings.mistakes else ""
        return f"offline: built-in rules, not a language model{spoiled}"
    return f"{settings.name} at {settings.base_url or 'the default endpoint of the openai package'}"


@asynccontextmanager
async def open_model(settings: ModelSettings, environment: Mapping[str, str], *, seed: int) -> AsyncIterator[Model]:
    """Make the model, and close its connections afterwards."""
    model = _made(settings, environment, seed)
    try:
        yield model
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await model.aclose()


def _made(settings: ModelSettings, environment: Mapping[str, str], seed: int) -> Model:
    if dialect_of(settings, environment) == "offline":
        from actors.llm.offline import OfflineModel  # noqa: PLC0415 - each dialect is loaded only where it is used

        return OfflineModel(seed=seed, mistakes=settings.mistakes)
    from actors.llm.chat import ChatModel, Sampling  # noqa: PLC0415 - openai takes a third of a second to import

    return ChatModel(
        model=settings.name or "",
        base_url=settings.base_url,
        api_key=api_key(environment),
        concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
        sampling=Sampling(
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            reasoning_effort=settings.reasoning_effort,
        ),
    )


def api_key(environment: Mapping[str, str]) -> str:
    """Return the key for the endpoint, or nothing."""
    return next((environment[name] for name in API_KEY_VARIABLES if environment.get(name)), "")
