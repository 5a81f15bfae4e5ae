"""Printing for commands: results to stdout, everything else to stderr. Plain text, readable without colour."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TextIO

import msgspec

from evaluators.process.printed import printable
from ksearch_async.views.text import columns_of, wrapped

_MOST_LINES = 8
"""Most terminal lines for a text of a model or candidate among other lines."""


def terminal_width() -> int | None:
    """Return the columns of the terminal that results are written to; null if they are written elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def in_colour() -> bool:
    """Return True if results may be coloured: on a terminal with colours, unless `NO_COLOR` is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shown_path(path: Path) -> str:
    """Return a path as people type it: on a terminal relative to the current folder, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if sys.stdout.isatty() and path.is_relative_to(here) else str(path)


def as_argument(path: Path) -> str:
    """Return a path quoted for a shell."""
    return quote(shown_path(path))


def harmless(text: str) -> str:
    """Return a text of the same length without anything that a terminal acts upon.

    Titles, reasons and sources are written by models and candidates: they could retitle a window, overwrite lines above
    them, or hide.
    """
    return text if text.isascii() and text.isprintable() else printable(text)


def coloured(text: str, code: str) -> str:
    """Return a text, made harmless, in a colour or style of the terminal, given by its SGR code."""
    return f"\x1b[{code}m{one_line(text)}\x1b[m"


_GLYPHS = "…★☆├└│─█░▁▂▃▄▅▆▇┄"
_SPELLED = str.maketrans(_GLYPHS, "~*+|`|-#._.,-=+*.")


def legible(text: str, stream: TextIO) -> str:
    """Return the text in a form that the stream can show: ASCII if its encoding or the locale has no more.

    A text that was fitted to a width still fits. Files get the exact text.
    """
    if text.isascii() or not _is_ascii_only(stream):
        return text
    spelled = text.translate(_SPELLED)
    return "".join(sign if sign.isascii() else "?" * columns_of(sign) for sign in spelled)


def _is_ascii_only(stream: TextIO) -> bool:
    """Return True for an encoding without our glyphs, and for terminals in the C locale."""
    try:
        _GLYPHS.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    return locale in ("C", "POSIX") and stream.isatty()


def told_lines(lead: str, text: str) -> list[str]:
    """Return a text of a model or candidate behind its lead: a few lines of the terminal, or one line elsewhere."""
    columns = terminal_width()
    if columns is None:
        return [lead + " ".join(text.split())]
    return wrapped(text, columns, lead=lead, most=_MOST_LINES)


def one_line(text: str) -> str:
    """Return a text as one harmless line: a title's line break must not start a line that looks like ours."""
    return harmless(text).replace("\n", " ")


def put(text: str = "") -> None:
    """Write one line of results for people, always made harmless: a pipe may end in a terminal."""
    put_styled(one_line(text))


def put_lines(lines: Iterable[str]) -> None:
    """Write lines of results for people, each made harmless as in `put`."""
    put_styled("\n".join(map(one_line, lines)))


def put_raw(text: str) -> None:
    """Write text for programs, or text that was requested verbatim: made harmless on a terminal only."""
    put_styled(harmless(text) if sys.stdout.isatty() else text)


def put_styled(text: str) -> None:
    """Write lines of harmless parts, with the terminal's colour codes."""
    sys.stdout.write(legible(text, sys.stdout) + "\n")
    sys.stdout.flush()


def put_json(value: object) -> None:
    """Write a result as one line of JSON."""
    put_raw(msgspec.json.encode(value).decode())


def note(text: str) -> None:
    """Write a line that is not a result."""
    sys.stdout.flush()
    sys.stderr.write(legible(one_line(text), sys.stderr) + "\n")
    sys.stderr.flush()


def report_error(error: BaseException, *, as_json: bool, as_event: bool = False) -> None:
    """Print an error: one `error:` line, then a `hint:` line for each of the exception's notes."""
    text = " ".join(str(error).split()) or type(error).__name__
    hints = [str(hint) for hint in getattr(error, "__notes__", ())]
    note(f"error: {text}")
    for hint in hints:
        note(f"hint: {hint}")
    if as_json:
        kind = {"kind": "error"} if as_event else {}
        put_json({**kind, "error": text, **({"hint": "; ".join(hints)} if hints else {})})
