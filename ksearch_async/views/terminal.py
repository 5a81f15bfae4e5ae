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
"""Of a terminal, that a text of a model's or a candidate's takes among others."""


def terminal_width() -> int | None:
    """Return the columns of the terminal that results go to; null where they go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def in_colour() -> bool:
    """Say whether results may be coloured: on a terminal that can, unless `NO_COLOR` is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shown_path(path: Path) -> str:
    """Return a path as people type it: on a terminal, relative to the current folder if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if sys.stdout.isatty() and path.is_relative_to(here) else str(path)


def as_argument(path: Path) -> str:
    """Return a path as it can be typed into a shell, wherever it is shown."""
    return quote(shown_path(path))


def harmless(text: str) -> str:
    """Return a text with nothing that a terminal acts upon, as long as it was.

    Titles, reasons and sources are written by models and candidates: they could retitle a window, overwrite what stands
    above them, or hide.
    """
    return text if text.isascii() and text.isprintable() else printable(text)


def coloured(text: str, code: str) -> str:
    """Return a text, made harmless, in a colour or style of the terminal, given by its SGR code."""
    return f"\x1b[{code}m{one_line(text)}\x1b[m"


_GLYPHS = "…★☆├└│─█░▁▂▃▄▅▆▇┄"
_SPELLED = str.maketrans(_GLYPHS, "~*+|`|-#._.,-=+*.")


def legible(text: str, stream: TextIO) -> str:
    """Return the text as the stream can show it: in ASCII where its encoding, or the terminal's locale, has no more.

    A text that was fitted to a width still fits. Files are given what was written, to the letter.
    """
    if text.isascii() or not _is_ascii_only(stream):
        return text
    spelled = text.translate(_SPELLED)
    return "".join(sign if sign.isascii() else "?" * columns_of(sign) for sign in spelled)


def _is_ascii_only(stream: TextIO) -> bool:
    """Say so for an encoding without our glyphs, and for terminals in the C locale (Python writes UTF-8 there too)."""
    try:
        _GLYPHS.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    return locale in ("C", "POSIX") and stream.isatty()


def told_lines(lead: str, text: str) -> list[str]:
    """Return what models and candidates say, behind its lead: a few lines of the terminal, or whole, on one line."""
    columns = terminal_width()
    if columns is None:
        return [lead + " ".join(text.split())]
    return wrapped(text, columns, lead=lead, most=_MOST_LINES)


def one_line(text: str) -> str:
    """Return a text as one harmless line: a title's line break must not begin a line that looks like ours."""
    return harmless(text).replace("\n", " ")


def put(text: str = "") -> None:
    """Write one line of results for people, cleaned wherever it goes: a pipe may end in a terminal."""
    put_styled(one_line(text))


def put_lines(lines: Iterable[str]) -> None:
    """Write lines of results for people, each cleaned as `put` does."""
    put_styled("\n".join(map(one_line, lines)))


def put_raw(text: str) -> None:
    """Write what programs read, or what a person asked for by the letter: cleaned on a terminal only."""
    put_styled(harmless(text) if sys.stdout.isatty() else text)


def put_styled(text: str) -> None:
    """Write lines made of harmless parts, with the terminal's codes for colours."""
    sys.stdout.write(legible(text, sys.stdout) + "\n")
    sys.stdout.flush()


def put_json(value: object) -> None:
    """Write a result as one line of JSON."""
    put_raw(msgspec.json.encode(value).decode())


def note(text: str) -> None:
    """Write a line that is no result."""
    sys.stdout.flush()
    sys.stderr.write(legible(one_line(text), sys.stderr) + "\n")
    sys.stderr.flush()


def report_error(error: BaseException, *, as_json: bool, as_event: bool = False) -> None:
    """Say what went wrong: one `error:` line, then a `hint:` line for each of the exception's notes."""
    text = " ".join(str(error).split()) or type(error).__name__
    hints = [str(hint) for hint in getattr(error, "__notes__", ())]
    note(f"error: {text}")
    for hint in hints:
        note(f"hint: {hint}")
    if as_json:
        kind = {"kind": "error"} if as_event else {}
        put_json({**kind, "error": text, **({"hint": "; ".join(hints)} if hints else {})})
