"""What `ksearch doctor --model` found out about endpoints: remembered in the user's cache folder, used by later runs.

One small JSON file per address and model, without keys. It can be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from actors.llm.features import Capabilities, Features, Sampling
from ksearch_async.config import ModelSettings
from ksearch_async.refusals import refusal


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and when."""

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
    """Write down what was found; return where.

    Raises:
        ConfigError: it cannot be written there.
    """
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
    """Return the parameters that are set and that the endpoint does not take."""
    given = {
        "temperature": settings.temperature,
        "reasoning_effort": settings.reasoning_effort,
        "seed": settings.seed,
    }
    refused = known.capabilities.refused if known is not None else ()
    return tuple(name for name, value in given.items() if value is not None and name in refused)
