"""How numbers, durations and long texts are put for people. Pure: knows nothing of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

from evaluators.printed import printable

_LONGEST = 4096
"""Characters of a text of which one line is made: a title of a megabyte is not looked through for each picture."""
_VARIATIONS = re.compile("[\ufe00-\ufe0f]")
"""Selectors of a glyph's variant: terminals disagree on the width that one gives to the sign before it."""


def plain(text: str) -> str:
    """Return a text on one line as it may stand in a picture: nothing that a terminal acts upon, no widths in doubt.

    Its beginning only, where it is very long. Whoever measures a text, measures this.
    """
    line = text if len(text) <= _LONGEST else text[:_LONGEST]
    if line.isascii() and line.isprintable() and "  " not in line:
        return line.strip()
    return " ".join(printable(_VARIATIONS.sub("", line)).split())


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for East Asian signs, none for combining accents."""
    return len(text) if text.isascii() else cell_len(printable(text))


def fitted(line: str, columns: int | None) -> str:
    """Return the line, its end left out where it is wider than the columns there are; leading blanks stay."""
    return line if columns is None or columns_of(line) <= columns else _cut(line, columns)


def shortened(text: str, width: int) -> str:
    """Return the text on one line, at most `width` columns wide."""
    line = plain(text)
    return line if columns_of(line) <= width else _cut(line, width)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return the text with blanks behind it, or before it, so that it is `width` columns wide."""
    blanks = " " * max(0, width - columns_of(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, columns: int, *, lead: str = "", most: int | None = None) -> list[str]:
    """Return the text in lines of at most so many columns, broken between words, or through those that are too long.

    Args:
        text: its line breaks and runs of blanks count for one blank each.
        columns: of each line.
        lead: stands before the first line; the others begin below its end.
        most: lines; what does not fit ends in `…`. Null: as many as it takes.
    """
    indent = " " * columns_of(lead)
    lines, line, is_bare = [], lead, True
    words = (text if most is None else text[: 4 * columns * (most + 1)]).split()
    for piece in (piece for word in words for piece in _pieces(printable(word), max(1, columns - len(indent)))):
        joined = f"{line}{piece}" if is_bare else f"{line} {piece}"
        if columns_of(joined) > columns and not is_bare:
            lines.append(line)
            joined = indent + piece
        line, is_bare = joined, False
    lines.append(line)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], fitted(f"{lines[most - 1]} {lines[most].strip()}", columns)]


def _pieces(word: str, columns: int) -> Iterator[str]:
    """Yield a word, in parts if it is too wide."""
    while columns_of(word) > columns:
        head = _head(word, columns) or word[0]
        yield head
        word = word[len(head) :]
    yield word


def _head(line: str, columns: int) -> str:
    """Return as much of a line's beginning as fits into so many columns."""
    if line.isascii():
        return line[:columns]
    signs = 0
    for sign in printable(line):
        columns -= cell_len(sign)
        if columns < 0:
            break
        signs += 1
    return line[:signs]


def _cut(line: str, columns: int) -> str:
    return f"{_head(line, max(0, columns - 1)).rstrip()}…"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its word: `1 branch`, `4 branches`."""
    return f"{count:,} {one if count == 1 else many}"


def dollars(amount: float) -> str:
    """Return US dollars: cents, and smaller amounts to the hundredth of a cent."""
    return f"${amount:,.4f}" if 0 < amount < 0.01 else f"${amount:,.2f}"


def rough_duration(seconds: float) -> str:
    """Return seconds in one unit: `48 s`, `3 min`, `5 h`, `12 d`."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def tokens_words(count: int) -> str:
    """Return a number of tokens with three digits or so: `940 tokens`, `136k tokens`, `4.21M tokens`."""
    if count < 10_000:
        return f"{count:,} tokens"
    return f"{count / 1000:.0f}k tokens" if count < 1_000_000 else f"{count / 1e6:.2f}M tokens"


def duration(seconds: float) -> str:
    """Return seconds for people: `48.2 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"
