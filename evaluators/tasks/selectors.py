"""Names of tasks: a bundled name, a path, or a source with a selector.

    softmax_rows:gpu                 bundled
    problems/mine.py:short,long      a file in KernelBench's format, with workloads
    flashinfer:PATH#DEFINITION       a source by name; the text after its colon is its own
    PATH                             a folder or file that one source recognizes needs no name before it

`read_text` and `parse_problem` read the files.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, get_args

import msgspec

from messages.base import ConfigError
from messages.tasks import TaskSource

SOURCES: Final = frozenset(get_args(TaskSource)) - {"program"}
_SEPARATORS = "#:"
_MAX_BYTES = 1 << 20


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """A task's name in its parts."""

    source: str
    """Name before the colon; empty: none."""
    within: str
    """The text after it."""
    path: Path | None
    """The longest existing path at its beginning; null: there is none."""
    rest: str
    """The part after that path, with its `#` or `:`."""


def parse_selector(name: str) -> Selector:
    """Split a name. Checks which paths exist, and reads nothing."""
    before, colon, behind = name.partition(":")
    source = before if colon and before in SOURCES and not Path(name).exists() else ""
    within = behind if source else name
    ends = [len(within), *(at for at in range(len(within) - 1, 0, -1) if within[at] in _SEPARATORS)]
    for end in ends:
        path = Path(within[:end]).expanduser()
        if within[:end] and path.exists():
            return Selector(source=source, within=within, path=path, rest=within[end:])
    return Selector(source=source, within=within, path=None, rest="")


def anchored(name: str) -> str:
    """Return the name with an absolute path, which means the same in every folder."""
    selector = parse_selector(name)
    if selector.path is None:
        return name if selector.source else str(Path(name).expanduser().absolute())
    prefix = f"{selector.source}:" if selector.source else ""
    return f"{prefix}{selector.path.absolute()}{selector.rest}"


def is_there(name: str) -> bool:
    """Return True if the path at the beginning of a name exists."""
    return parse_selector(name).path is not None


def is_gone(name: str) -> bool:
    """Return True if an anchored name begins with a path that no longer exists."""
    selector = parse_selector(name)
    return selector.path is None and Path(selector.within).is_absolute()


def read_text(path: Path, called: str) -> str:
    """Return the text of a problem's file, which messages call `called`.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8 text, or is larger than 1 MiB.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{called} is larger than 1 MiB; is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {called}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{called} is not UTF-8 text (byte {error.start})") from error


def parse_problem(text: str, shown: str, lines_before: int = 0) -> ast.Module:
    """Return the syntax tree of a problem file, or of the part behind `lines_before` lines.

    Raises:
        ConfigError: it is not Python; the message names the line.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        line = (error.lineno or 0) + lines_before
        raise ConfigError(f"problem file {shown!r}, line {line}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"problem file {shown!r} is no Python text: {error}") from error
