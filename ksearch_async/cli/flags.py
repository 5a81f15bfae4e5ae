"""Options of `run`, `resume`, `eval` and `export`; those of settings follow from `ksearch_async.settings.options`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec
from cyclopts import Group, Parameter

from ksearch_async.evaluation.settings import EvaluationSettings
from ksearch_async.settings.options import GROUPS, NATS, SESSION_SETTINGS, SETTINGS, Setting
from ksearch_async.settings.run_config import EndpointKind
from messages.base import Language

_GROUPS = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS, 1)}
"""Headings of `--help`; options without one come last."""

JsonFlag: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""`--json`, which every command has."""

ViewFlag: TypeAlias = Annotated[Literal["auto", "live", "plain"], Parameter(name="--view")]
"""`--view`, of the commands that lead a search."""

DetachFlag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
"""`--detach`, of the same commands."""

CredentialsFlag: TypeAlias = Annotated[Path | None, Parameter(group=_GROUPS[NATS])]
"""`--credentials`, of the commands that lead a search."""

_HERE = {"__module__": __name__}
_RUNS_OWN = "of a run's best, that of the run"
_OF_EVALUATIONS: Mapping[str, str] = {
    "language": "of .cu files cuda, of .py files triton (python if they define ModelNew), else cpp",
    "device": "",
    "baseline": "",
    "isolation": "",
    "threads": _RUNS_OWN,
    "measure": _RUNS_OWN,
    "tolerance": _RUNS_OWN,
    "library_calls": _RUNS_OWN,
    "allow_library": "",
    "allow_trivial": "",
}
"""Settings that `eval`, `export` and `bench` have, and what `--help` adds about their defaults."""

_OF_DRAFTS = ("model", "base_url", "model_kind", "timeout", "temperature", "max_answer_tokens", "reasoning_effort")
"""Settings that `new-task` has."""
_OF_NODES = (*_OF_DRAFTS, "llm_seed", "structured", "early_stop", "mistakes")
"""Settings that planners and coders have."""


def _flag(setting: Setting, *, default: str, group: Group | None) -> tuple[str, object, None]:
    """Return a field of a dataclass of flags; null: the flag was not given."""
    kind: Any = setting.kind
    if get_origin(kind) is Literal and "" in get_args(kind):  # only Python and files can say "none" by it
        kind = Literal[tuple(choice for choice in get_args(kind) if choice)]
    words = f"{setting.help} [default: {default}]" if default else setting.help
    parameter = Parameter(help=words, group=group, negative="" if setting.value is False else None)
    return setting.keyword, Annotated[kind | None, parameter], None


def _run_flags(name: str, settings: Iterable[Setting]) -> type:
    made = [_flag(each, default=each.default, group=_GROUPS[each.option.group]) for each in settings]
    return Parameter(name="*")(make_dataclass(name, made, namespace=_HERE, frozen=True, kw_only=True))


def _settings_of_nodes() -> Iterator[Setting]:
    """Yield the settings of a node's model; recordings and answers by hand are for runs that have a folder."""
    kinds = (
        "`auto` asks an endpoint if a model is named, and the built-in rules if not; `chat` and `responses` name "
        "the endpoint's protocol."
    )
    for each in SETTINGS:
        if each.keyword in _OF_NODES:
            is_kind = each.keyword == "model_kind"
            yield msgspec.structs.replace(each, kind=EndpointKind, help=kinds) if is_kind else each


def _evaluation_flags() -> type:
    made = []
    for each in SETTINGS:
        if each.keyword in _OF_EVALUATIONS:
            own = _OF_EVALUATIONS[each.keyword]
            default = own if each.keyword == "language" else "; ".join(filter(None, (each.default, own)))
            made.append(_flag(each, default=default, group=None))
    made.sort(key=lambda field: list(_OF_EVALUATIONS).index(field[0]))
    return make_dataclass("_EvaluationFlags", made, namespace=_HERE, frozen=True, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One field per setting; null where its flag was not given."""


if TYPE_CHECKING:

    class SessionFlags(Flags):
        """Flags of what may differ from one session of a run to the next."""

    class RunFlags(Flags):
        """Flags of what a run is started with."""

    class ModelFlags(Flags):
        """Flags of a model that answers a question outside of a search."""

    @dataclass(frozen=True, kw_only=True)
    class EndpointFlags(Flags):
        """Flags of the model that a node asks."""

        model: str | None = None

    class _EvaluationFlags(Flags):
        language: Language | None

else:
    SessionFlags = _run_flags("SessionFlags", SESSION_SETTINGS)
    RunFlags = _run_flags("RunFlags", SETTINGS)
    ModelFlags = _run_flags("ModelFlags", [each for each in SETTINGS if each.keyword in _OF_DRAFTS])
    EndpointFlags = _run_flags("EndpointFlags", _settings_of_nodes())
    _EvaluationFlags = _evaluation_flags()


def sign_in_with(credentials: Path | None) -> None:
    """Have this process sign in with a file, as if its environment said so. It is no setting: no run saves it."""
    if credentials is None:
        return
    from ksearch_async.fleet.access import read_credentials  # noqa: PLC0415 - `--help` needs none of it

    read_credentials(credentials)
    os.environ["KSEARCH_NATS_CREDENTIALS"] = str(credentials.absolute())


def named_flags(given: Flags) -> dict[str, object]:
    """Return flag → value, as `resolve_config` takes them."""
    return {field.name.strip("_").replace("_", "-"): getattr(given, field.name) for field in fields(given)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluationFlags(_EvaluationFlags):
    """How sources are evaluated; without a flag as by default, or of a run's kernel as in the run."""

    def settings(self) -> EvaluationSettings:
        """Return what was named."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return msgspec.convert({name: value for name, value in named.items() if value is not None}, EvaluationSettings)


NO_EVALUATION_FLAGS = EvaluationFlags()
