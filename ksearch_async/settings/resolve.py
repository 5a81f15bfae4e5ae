"""Merges defaults, effort, file, environment and flags into one checked configuration; says where values are from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from evaluators.languages.cpp.toolchain import COMPILER_VARIABLE
from ksearch_async.errors import refusal, suggestion
from ksearch_async.follow.choices import check_url, kinds_of, tracker_names
from ksearch_async.settings.effort import EFFORTS, Effort
from ksearch_async.settings.options import SETTINGS
from ksearch_async.settings.run_config import (
    API_KEY_VARIABLES,
    FOREIGN_VARIABLES,
    OTHER_VARIABLES,
    ROLE_KEY_VARIABLES,
    RunConfig,
    flatten,
)
from messages.base import ConfigError

_LARGEST_INT = 2**63 - 1
"""Limits of a message."""
_CHECKS: Mapping[str, Callable[[str], object]] = {
    "tracking.to": tracker_names,
    "notify.url": check_url,
    "notify.on": kinds_of,
}
"""Checks beyond the types of text settings."""


class Given(msgspec.Struct, frozen=True):
    """A value that a person set."""

    value: object
    origin: str
    """`--branches`, `KSEARCH_BRANCHES`, a file's name, `effort quick`, `saved`."""


Layer: TypeAlias = Mapping[str, Given]
"""Dotted path → value."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, and where it comes from."""

    config: RunConfig
    origins: dict[str, str]
    """Dotted path of every setting → `Given.origin`, or `default`."""


def resolve_config(
    task: str | None = None,
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    saved: RunConfig | None = None,
) -> RunConfig:
    """Merge defaults and effort (or a saved configuration) with file, environment and flags, and check the result.

    Args:
        task: The task as named on the command line.
        config_file: TOML, with the tables of `RunConfig`.
        environment: `KSEARCH_…` variables are read, others ignored.
        flags: Flag (see `SETTINGS`), or keyword and `=`, → value; null means not given.
        saved: What a run was started with, when it is resumed.
    """
    return trace_config(task, config_file=config_file, environment=environment, flags=flags, saved=saved).config


def trace_config(
    task: str | None = None,
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    saved: RunConfig | None = None,
) -> Resolved:
    """Do what `resolve_config` does, and say of each setting where its value comes from."""
    named: dict[str, Given] = {}
    if config_file is not None:
        named.update(_read_file(config_file))
    named.update(_read_environment(environment))
    named.update(_read_flags(flags))
    if task is not None:
        named["task"] = Given(task, "argument")
    merged = {**_foundation(named, saved), **named}
    if "task" not in merged:
        raise refusal("no task given", "name a bundled problem or a problem file: ksearch run rmsnorm_silu")
    config = msgspec.convert(_nest({path: given.value for path, given in merged.items()}), RunConfig)
    origins = {
        path: merged[path].origin if path in merged else "default" for path, _ in flatten(msgspec.to_builtins(config))
    }
    return Resolved(config=config, origins=origins)


def _foundation(named: Layer, saved: RunConfig | None) -> Layer:
    """Return what lies below everything that is set by name: a saved run's numbers, or those of the effort."""
    if saved is not None:  # its effort was spent on its numbers when it was started
        return {path: Given(value, "saved") for path, value in flatten(msgspec.to_builtins(saved))}
    if "effort" not in named:
        return {}
    effort = msgspec.convert(named["effort"].value, Effort)
    return {path: Given(value, f"effort {effort}") for path, value in EFFORTS[effort].items()}


def _nest(flat: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *tables, key = path.split(".")
        table = nested
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return nested


def _read_file(path: Path) -> Layer:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise refusal(f"cannot read configuration file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(f"{str(path)!r} is not TOML: {error}") from error
    layer: dict[str, Given] = {}
    for key, value in flatten(content):
        where = f"{key!r} in {str(path)!r}"
        if not (value == {} and _is_table(_type_of(key, where))):
            layer[key] = Given(_checked(value, key, where, strict=True), str(path))
    return layer


def _read_environment(environment: Mapping[str, str]) -> Layer:
    known = {setting.variable: setting for setting in SETTINGS}
    others = {*API_KEY_VARIABLES, *ROLE_KEY_VARIABLES.values(), *OTHER_VARIABLES, COMPILER_VARIABLE}
    layer: dict[str, Given] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith("KSEARCH_") or name in others or name in FOREIGN_VARIABLES:
            continue
        setting = known.get(name)
        if setting is None:
            hint = suggestion(name, (*known, *others), "ksearch run --help lists the settings")
            raise refusal(f"unknown environment variable {name!r}", hint)
        layer[setting.path] = Given(_checked(text, setting.path, name, strict=False), name)
    return layer


def _read_flags(flags: Mapping[str, object]) -> Layer:
    """Take flags, and keywords of the Python interface; errors name each as it was written."""
    paths = {setting.flag: (setting.path, f"--{setting.flag}") for setting in SETTINGS}
    paths |= {f"{setting.keyword}=": (setting.path, setting.keyword) for setting in SETTINGS}
    given = [(*paths[name], value) for name, value in flags.items() if value is not None]
    return {path: Given(_checked(value, path, where, strict=True), where) for path, where, value in given}


def _checked(value: object, path: str, where: str, *, strict: bool) -> object:
    """Return the value as its field wants it; `where` names its origin in the refusal."""
    kind = _type_of(path, where)
    if _is_table(kind):
        raise refusal(f"{where} is a table: write [{path}] and its keys under it")
    if path == "nats" and "@" in str(value):
        raise refusal(  # the value is not repeated: it may hold a password
            f"{where}: an address must not hold credentials, it is saved with the run",
            "KSEARCH_NATS_CREDENTIALS names a file that holds them",
        )
    try:
        converted: object = msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        said = str(error).split(" - at ", 1)[0].split(", got ", 1)[0].replace("`", "")
        raise refusal(f"{where}: {said[:1].lower()}{said[1:]}, not {value!r}") from error
    if path in _CHECKS and isinstance(converted, str):
        _check_words(_CHECKS[path], converted, where)
    if isinstance(converted, float) and not isfinite(converted):
        raise refusal(f"{where}: expected a finite number, not {value!r}")
    if isinstance(converted, int) and abs(converted) > _LARGEST_INT:
        raise refusal(f"{where}: expected an int of at most 64 bits, not {value!r}")
    return converted


def _check_words(check: Callable[[str], object], words: str, where: str) -> None:
    try:
        check(words)
    except ConfigError as error:
        raise refusal(f"{where}: {error}", *getattr(error, "__notes__", ())) from error


def _type_of(path: str, where: str) -> Any:
    kind: Any = RunConfig
    walked = ""
    for name in path.split("."):
        if not _is_table(kind):
            raise refusal(f"{where}: {walked.rstrip('.')!r} is a value, not a table")
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if name not in fields:
            near = suggestion(name, fields, f"known here: {', '.join(fields)}")
            places = " or ".join(_places_of(name))
            hint = f"it is {places}" if places else near
            raise refusal(f"unknown key {where}", f"{hint}; ksearch run TASK --dry-run shows all keys")
        kind, walked = fields[name], f"{walked}{name}."
    return kind


def _places_of(name: str) -> list[str]:
    """Return where a key may have been meant to stand: where the flag of its name is set, or wherever there is one."""
    word = name.replace("-", "_")
    of_flag = [setting.path for setting in SETTINGS if setting.keyword == word]
    return of_flag or [path for path in _paths(RunConfig) if path.split(".")[-1] == word]


def _paths(table: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(table):
        yield prefix + field.name
        if _is_table(field.type):
            yield from _paths(field.type, f"{prefix}{field.name}.")


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
