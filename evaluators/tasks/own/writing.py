"""Writes a task of one's own as a folder: `task.toml` and the file of its reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evaluators.tasks.own.document import DOCUMENT, Document
from messages.base import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_folder(folder: Path, document: Document, files: Mapping[str, str]) -> None:
    """Write a task; what is there already is written anew.

    Args:
        folder: made if it is not there.
        document: of the task.
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
    """Return a value as TOML writes it; its texts are JSON's."""
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
