"""What stands in a `task.toml`, checked key by key: each mistake is one line with the file, the key and what to do."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec

from messages.base import ConfigError, Language
from messages.calls import Calling
from messages.tasks import Dimension, LibraryCalls, Measure

DOCUMENT = "task.toml"
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
_PATH = re.compile(r" - at `(?:key in )?\$\.?(?P<key>[^`]*)`$")
_MAX_BYTES = 1 << 20
_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    " | null": "",
}
"""How msgspec calls what stands in a document, and how we do."""
_T = TypeVar("_T")


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument of the reference: a tensor, or a value that is the same in every call."""

    name: str
    shape: tuple[int | str, ...] | None = None
    """Of a tensor: numbers, dimensions, and expressions over them (`"2 * rows"`)."""
    dtype: str = "float32"
    distribution: str | None = None
    """As `distributions.py` lists them; null: `normal`, of integers and booleans none."""
    as_drawn: bool = False
    """Whether it has only values as they are drawn: no family of test data changes it."""
    value: Dimension | None = None
    """Of what is no tensor: a number, a text, true or false; a text that is a dimension's name means that."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What candidates may do, and how their time counts; see `TaskRules`."""

    library_calls: LibraryCalls = "deny"
    allow: tuple[str, ...] = ()
    measure: Measure = "device"
    threads: int = 0


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tolerance; see `Tolerance`."""

    profile: str = "strict"
    rtol: float | None = None
    atol: float | None = None


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That a model drafted the task, and whether a person took it on. Without it, a person wrote the task."""

    model: str
    """Who drafted it."""
    text: str
    """The sentence that it was drafted from."""
    accepted: bool = False
    """Whether a person said yes; nothing is searched before."""


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `task.toml`."""

    name: str
    reference: str
    """`FILE.py:FUNCTION`, beside the document."""
    description: str = ""
    inputs: tuple[Input, ...] | str = ()
    """In the order of the function's arguments; or `FILE.py:FUNCTION`, which takes dimensions and returns them."""
    workloads: dict[str, dict[str, Dimension]] = {}
    hidden_workloads: dict[str, dict[str, Dimension]] = {}
    tolerance: str | Bounds = "strict"
    languages: tuple[Language, ...] = ()
    calling: Literal["function", "destination"] = "function"
    baseline: Literal["eager"] = "eager"
    """What speedups are against: the reference as it stands. `--baseline torch.compile` times another one besides."""
    rules: Rules = Rules()
    draft: Draft | None = None


def read_document(path: Path) -> Document:
    """Return what a `task.toml` says.

    Raises:
        ConfigError: it cannot be read, is no TOML, or has a key or value that is none.
    """
    shown = str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{shown!r} is larger than 1 MiB; is it the right file?")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read {shown!r}: {error.strerror}; a task of your own is a folder with a {DOCUMENT} "
            "(ksearch new-task NAME writes one)"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown!r} is not UTF-8 text (byte {error.start})") from error
    return parse_document(text, shown)


def parse_document(text: str, shown: str) -> Document:
    """Return what the text of a `task.toml` says.

    Args:
        text: of the file.
        shown: how to call it in messages.

    Raises:
        ConfigError: it is no TOML, or has a key or value that is none.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown!r} is no TOML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{shown!r} is nested too deeply") from error
    return _converted(table, Document, shown)


def _converted(table: dict[str, object], kind: type[_T], shown: str) -> _T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{shown!r}, {_explained(str(error))}") from error


def _explained(said: str) -> str:
    """Put what msgspec says into our words: the key first."""
    found = _PATH.search(said)
    key = found["key"].replace("[...]", "") if found else ""
    what = said[: found.start()] if found else said
    if unknown := re.search(r"unknown field `(.*?)`", what):
        inside = f" in {key}" if key else ""
        known = _known(key)
        return f"unknown key {unknown[1]!r}{inside}; there are: {', '.join(known)}"
    if missing := re.search(r"missing required field `(.*?)`", what):
        where = f"{key}: " if key else ""
        return f"{where}the key {missing[1]!r} is missing"
    if bad := re.search(r"Invalid enum value '(.*?)'", what):
        return f"{key}: {bad[1]!r} is none of {', '.join(map(repr, _choices(key)))}"
    for theirs, ours in _WORDS.items():
        what = what.replace(theirs, ours)
    return f"{key or 'the whole'}: {what[:1].lower()}{what[1:]}".replace("`", "").replace("|", "or")


def _known(key: str) -> tuple[str, ...]:
    kinds: dict[str, type[msgspec.Struct]] = {"inputs": Input, "rules": Rules, "tolerance": Bounds, "draft": Draft}
    kind = kinds.get(re.split(r"[\[.]", key)[0], Document)
    return tuple(field.name for field in msgspec.structs.fields(kind))


def _choices(key: str) -> tuple[str, ...]:
    found: dict[str, tuple[str, ...]] = {
        "languages": get_args(Language),
        "calling": get_args(Calling)[1:],
        "baseline": ("eager",),
        "rules.library_calls": get_args(LibraryCalls),
        "rules.measure": get_args(Measure),
    }
    return found.get(key.partition("[")[0], ())
