"""`task.toml`: its fields, reading, writing, and the commented one that `ksearch new-task` writes.

An error in one is reported in one line: the file, the key and what to do.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
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
"""msgspec's names of types, and ours."""
_T = TypeVar("_T")


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument of the reference: a tensor, or a value that is the same in every call."""

    name: str
    shape: tuple[int | str, ...] | None = None
    """Shape of a tensor: numbers, dimensions, and expressions over them (`"2 * rows"`)."""
    dtype: str = "float32"
    distribution: str | None = None
    """Name from `distributions.py`; null: `normal`, for integers and booleans none."""
    as_drawn: bool = False
    """True if it is tested only with drawn values, and no other input distribution."""
    value: Dimension | None = None
    """Value of an argument that is not a tensor: a number, a string or a boolean; a dimension's name stands for it."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules for candidates and for how they are timed; see `TaskRules`."""

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
    """States that a model drafted the task, and whether a person accepted it. Without it, a person wrote the task."""

    model: str
    """Model that drafted it."""
    text: str
    """The sentence that it was drafted from."""
    accepted: bool = False
    """True if a person accepted it; nothing is searched before."""


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `task.toml`."""

    name: str
    reference: str
    """`FILE.py:FUNCTION`, relative to the document's folder."""
    description: str = ""
    inputs: tuple[Input, ...] | str = ()
    """Inputs in the order of the function's arguments; or `FILE.py:FUNCTION`, which takes dimensions and returns the
    inputs."""
    workloads: dict[str, dict[str, Dimension]] = {}
    hidden_workloads: dict[str, dict[str, Dimension]] = {}
    tolerance: str | Bounds = "strict"
    languages: tuple[Language, ...] = ()
    calling: Literal["function", "destination"] = "function"
    baseline: Literal["eager"] = "eager"
    """Baseline of speedups: the reference, unchanged. `--baseline torch.compile` times another one, too."""
    rules: Rules = Rules()
    draft: Draft | None = None


def read_document(path: Path) -> Document:
    """Return the document of a `task.toml`.

    Raises:
        ConfigError: it cannot be read, is not TOML, or has an unknown key or an invalid value.
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
    """Return the document in the text of a `task.toml`.

    Args:
        text: text of the file.
        shown: name of the file in messages.

    Raises:
        ConfigError: it is not TOML, or has an unknown key or an invalid value.
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
    """Return a message of msgspec in our words: the key first."""
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


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_folder(folder: Path, document: Document, files: Mapping[str, str]) -> None:
    """Write a task. Existing files are replaced.

    Args:
        folder: created if it does not exist.
        document: document of the task.
        files: text by relative path.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        for path, text in {**files, DOCUMENT: "\n".join(_lines(document)) + "\n"}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write a task to {str(folder)!r}: {error.strerror}") from error


def _lines(document: Document) -> Iterator[str]:
    told: dict[str, object] = msgspec.to_builtins(document)
    tables = {key: told.pop(key) for key in ("inputs", "workloads", "hidden_workloads", "rules", "draft")}
    yield from (f"{key} = {_value(value)}" for key, value in told.items() if value is not None)
    inputs = tables.pop("inputs")
    for one in inputs if isinstance(inputs, list | tuple) else ():
        yield from ("", "[[inputs]]", *_entries(one))
    for key, table in tables.items():
        if isinstance(table, Mapping) and table:
            yield from ("", f"[{key}]", *_entries(table))


def _entries(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{_key(key)} = {_value(value)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: object) -> str:
    """Return a value in TOML; its strings are JSON's."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case Mapping():
            inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None)
            return f"{{{inner}}}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


REFERENCE = "reference.py"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")

_TEMPLATE = Template("""\
# A task of your own. Look at it with `ksearch check-task ./$name`, search with `ksearch run ./$name`.

name = "$name"
description = "RMSNorm over the last dimension, then SiLU."   # models read it; say what matters

# The function that is to be made fast: FILE.py:FUNCTION, beside this file. Files that it imports come with it.
reference = "reference.py:$name"

# How far outputs may lie from the reference: "strict", or what another harness lets through ("kernelbench",
# "flashinfer", "gpumode:RTOL,ATOL"); or {profile = "strict", rtol = 1e-3, atol = 1e-5}.
tolerance = "strict"

# What kernels may be written in. Leave it out for any: "triton", "cuda", "cpp", "python".
# languages = ["triton", "cuda"]

# How candidates in "python" are called: "function" returns its outputs; "destination" is given them behind the inputs.
# calling = "function"

# The arguments of the function, in their order.
[[inputs]]
name = "x"
shape = ["rows", "columns"]        # numbers, dimensions of the workloads, and expressions: "2 * rows", "columns // 4"
dtype = "float32"                  # float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool
distribution = "normal"            # normal normal(0, 0.02) uniform(-1, 1) zeros ones integers(0, rows) permutation
                                   # bernoulli(0.5)
# as_drawn = true                  # test it on such values only: probabilities, lengths

[[inputs]]
name = "weight"
shape = ["columns"]
distribution = "normal(1, 0.1)"

[[inputs]]
name = "eps"
value = 1e-6                       # no tensor: the same in every call; or the name of a dimension

# Sizes on which kernels are checked and timed; what counts is the geometric mean of the speedups.
[workloads]
small = {rows = 256, columns = 1024}
odd = {rows = 253, columns = 1021}

# Kernels must be right on these too, before one counts as the best; models are never told of them. (The built-in rules
# write for the shapes that they are shown and no others; models can be asked for more.)
# [hidden_workloads]
# held_out = {rows = 131, columns = 771}

[rules]
library_calls = "deny"             # whether torch's own operators may do the work: "deny" or "allow"
# allow = ["matmul"]               # some of them: families, aten::NAME, libraries
# measure = "device"               # on a GPU: "device", kernels alone; "eager", the call as a user makes it
# threads = 0                      # of a CPU; 0: all
""")
_REFERENCE = Template('''\
"""The reference of `$name`: plain torch, right before fast. Kernels must give what this gives."""

import torch


def $name(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return torch.nn.functional.silu(normed * weight)
''')


def write_task(parent: Path, name: str) -> Path:
    """Write a commented task that works, and return its folder.

    Args:
        parent: folder in which the task's folder is made.
        name: name of the task, its folder and its function.

    Raises:
        ConfigError: it is not a valid name, it exists already, or it cannot be written.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a task: letters, digits and _, as a Python function's")
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        (folder / DOCUMENT).write_text(_TEMPLATE.substitute(name=name), encoding="utf-8")
        (folder / REFERENCE).write_text(_REFERENCE.substitute(name=name), encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(f"{str(folder)!r} is there already; name another task, or remove it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error.strerror}") from error
    return folder
