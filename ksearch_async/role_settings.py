"""What may be set for one role alone: who plans and who writes may be different models, at different endpoints.

`[model]` in the file is for both; `[model.planner]` and `[model.coder]` say what differs, and each of
`[[model.coder.members]]` what differs for one of several models that write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from actors.llm.base import ReasoningEffort
from ksearch_async.refusals import refusal
from messages.base import EditFormat
from messages.models import Choice
from messages.settings import Positive

if TYPE_CHECKING:
    from ksearch_async.config import ModelSettings

ROLE_KEY_VARIABLES: Mapping[Literal["planner", "coder"], str] = {
    "planner": "KSEARCH_PLANNER_API_KEY",
    "coder": "KSEARCH_CODER_API_KEY",
}
"""Where a role's own key is looked for first."""

TIER_PATTERN = "^[a-z0-9][a-z0-9-]{0,31}$"
EndpointKind: TypeAlias = Literal["auto", "offline", "chat", "responses"]


class Overrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one role has of its own; null: as `[model]` says."""

    kind: EndpointKind | None = None
    name: str | None = None
    base_url: str | None = None
    key_variable: str | None = None
    """Environment variable that holds the key."""
    concurrency: Positive | None = None
    """This and the next two are the endpoint's: of roles that share one the smallest counts."""
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Positive | None = None
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    structured: Literal["auto", "on", "off"] | None = None
    early_stop: bool | None = None


class WriterOverrides(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What who writes has of its own."""

    edit_format: EditFormat | None = None
    """In which form it answers; null: as `[search]` says."""


class Member(WriterOverrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several models that write."""

    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    """Its share of the candidates, with `choice = "weights"`."""
    tier: Annotated[str, msgspec.Meta(pattern=TIER_PATTERN)] | None = None
    """Which coders have it, where they are processes of their own; null: those of the run's tier."""


class CoderSettings(WriterOverrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different for who writes. `name` may list several, with commas: `small=3,large`."""

    choice: Choice = "weights"
    """How one of several is chosen: by weights, or (`bandit`) by which brings correct and faster kernels for least."""
    members: tuple[Member, ...] = ()
    """Several models with settings of their own."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A model that writes, with all that is set for it."""

    settings: ModelSettings
    weight: float = 1.0
    tier: str = ""
    edit_format: EditFormat | None = None


def planner_settings(model: ModelSettings, environment: Mapping[str, str]) -> ModelSettings:
    """Return all that is set for who plans."""
    return _bare(_with(_keyed(model, "planner", environment), model.planner))


def writers(model: ModelSettings, environment: Mapping[str, str]) -> tuple[Writer, ...]:
    """Return who writes, one or several, each with all that is set for it.

    Raises:
        ConfigError: two have one name, or are listed in two ways.
    """
    base = _with(_keyed(model, "coder", environment), model.coder)
    members = model.coder.members
    if members and model.coder.name is not None:
        raise refusal("coder models are listed in [[model.coder.members]] and named besides", "leave one of both out")
    if not members and base.name is not None and ("," in base.name or "=" in base.name):
        members = _listed(base.name)
    if not members:
        return (Writer(settings=_bare(base), edit_format=model.coder.edit_format),)
    found = tuple(
        Writer(
            settings=_bare(_with(base, member)),
            weight=member.weight,
            tier=member.tier or "",
            edit_format=member.edit_format or model.coder.edit_format,
        )
        for member in members
    )
    names = [writer.settings.name for writer in found]
    for name in names:
        if name is None:
            raise refusal("a coder model has no name", "each of [[model.coder.members]] needs a `name`")
        if names.count(name) > 1:
            raise refusal(f"coder model {name!r} is listed twice", "give each once, with its weight")
    return found


def _listed(text: str) -> tuple[Member, ...]:
    """Read `small=3,large`."""
    members = []
    for word in text.split(","):
        name, equals, weight = word.strip().partition("=")
        try:
            members.append(msgspec.convert({"name": name, "weight": float(weight) if equals else 1.0}, Member))
        except (ValueError, msgspec.ValidationError) as error:
            raise refusal(
                f"--coder-model {text!r}: {word!r} is no model with a weight", "write NAME=3,OTHER"
            ) from error
        if not name:
            raise refusal(f"--coder-model {text!r}: a name is missing", "write NAME=3,OTHER")
    return tuple(members)


def _keyed(model: ModelSettings, role: Literal["planner", "coder"], environment: Mapping[str, str]) -> ModelSettings:
    variable = ROLE_KEY_VARIABLES[role]
    return msgspec.structs.replace(model, key_variable=variable) if environment.get(variable) else model


def _with(model: ModelSettings, own: Overrides) -> ModelSettings:
    said = {name: value for name in Overrides.__struct_fields__ if (value := getattr(own, name)) is not None}
    return msgspec.structs.replace(model, **said)


def _bare(model: ModelSettings) -> ModelSettings:
    """Return settings without those of roles: they are in it by now."""
    return msgspec.structs.replace(model, planner=Overrides(), coder=CoderSettings())
