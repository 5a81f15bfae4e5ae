"""What a problem's `task.yml` says, typed: a boolean of a case stays one.

Their harness writes each case as a line of text and reads it back by a regular expression of its own, where a boolean
comes back as the text "False", which is true. Here cases keep their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from evaluators.tasks import texts
from messages.base import ConfigError
from messages.tasks import Dimension

Ranking: TypeAlias = Literal["last", "mean", "geom"]
"""How times of the benchmarks become one figure: the last one's, their arithmetic or their geometric mean."""

DOCUMENT = "task.yml"


class NamedFile(msgspec.Struct, frozen=True):
    """A file that a submission finds beside itself."""

    name: str
    source: str
    """Relative to the document; `@SUBMISSION@` for the submission itself."""


class Document(msgspec.Struct, frozen=True):
    """The fields of `task.yml` that matter here; others are let be."""

    files: tuple[NamedFile, ...]
    tests: tuple[dict[str, object], ...] = ()
    benchmarks: tuple[dict[str, object], ...] = ()
    lang: str = "py"
    description: str = ""
    ranking_by: Ranking = "last"
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()


def read_document(path: Path) -> Document:
    """Return what a `task.yml` says.

    Raises:
        ConfigError: it cannot be read, is no YAML, or says what it may not.
    """
    import yaml  # noqa: PLC0415 - no other task needs it

    text = read_text(path)
    try:
        said: object = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{str(path)!r}, line {line}: {error.problem or 'no YAML'}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{str(path)!r} is no YAML: {' '.join(str(error).split())[:200]}") from error
    try:
        document = msgspec.convert(said, Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{str(path)!r} is no GPUMode task: {error}") from error
    _refuse_foreign(document, path)
    return document


def read_text(path: Path) -> str:
    """Return a file of a problem.

    Raises:
        ConfigError: it cannot be read, or is none of a problem's.
    """
    return texts.read_text(path, repr(str(path)))


def dimensions_of(case: Mapping[str, object], where: str) -> dict[str, Dimension]:
    """Return a case as dimensions of a workload; a list becomes its literal, as text.

    Raises:
        ConfigError: it holds something else than numbers, texts, booleans and lists of them.
    """
    found: dict[str, Dimension] = {}
    for name, value in case.items():
        if not name.isidentifier():
            raise ConfigError(f"{where}: {name!r} cannot be an argument of generate_input")
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif isinstance(value, list) and all(isinstance(one, bool | int | float | str) for one in value):
            found[name] = repr(value)
        else:
            raise ConfigError(f"{where}: {name!r} is {type(value).__name__}, not a number, text, boolean or list")
    return found


def listed_names(document: Document) -> tuple[str, ...]:
    """Return the arguments that are lists in any case."""
    cases = (*document.tests, *document.benchmarks)
    return tuple(dict.fromkeys(name for case in cases for name, value in case.items() if isinstance(value, list)))


def flag_names(document: Document) -> tuple[str, ...]:
    """Return the arguments that are false in any case: upstream's harness reads them as true."""
    cases = (*document.tests, *document.benchmarks)
    return tuple(dict.fromkeys(name for case in cases for name, value in case.items() if value is False))


def _refuse_foreign(document: Document, path: Path) -> None:
    if document.lang != "py":
        raise ConfigError(f"{str(path)!r}: problems of lang {document.lang!r} are not supported; only 'py' is")
    if document.multi_gpu:
        raise ConfigError(f"{str(path)!r} is a problem for several GPUs at once, which candidates here do not get")
    if not document.tests and not document.benchmarks:
        raise ConfigError(f"{str(path)!r} has neither tests nor benchmarks")
