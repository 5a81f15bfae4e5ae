"""Where a text that was searched in vain is nearest: said so that its author sees what differs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

_SHOWN_CHARS = 120
_SHOWN_LINES = 16
_COMPARED_LINES = 4_000
"""Of larger files the beginning is compared: 128 KiB of code have no more."""


def nearest_lines(search: Sequence[str], lines: Sequence[str]) -> str:
    """Say which lines are most like the searched ones, and the first that differs."""
    wanted = [line.strip() for line in search if line.strip()]
    there = [(at, line.strip()) for at, line in enumerate(lines[:_COMPARED_LINES]) if line.strip()]
    start = _best_start(wanted, [line for _, line in there])
    if start is None:
        return "Nothing there is like them"
    shown = there[start : start + len(wanted)]
    found = f"Nearest are lines {shown[0][0] + 1} to {shown[-1][0] + 1}"
    as_they_are = _numbered(lines, shown[0][0], shown[-1][0] + 1)
    for searched, (at, line) in zip(wanted, shown, strict=False):
        if searched.split() != line.split():
            return f"{found}, where line {at + 1} is {_cut(line)!r} and not {_cut(searched)!r}:\n{as_they_are}"
    return f"{found}, which are laid out differently: copy them as they are:\n{as_they_are}"


def _numbered(lines: Sequence[str], start: int, end: int) -> str:
    """Return lines with their numbers, the first ones of many."""
    shown = [f"{at + 1:5}| {_cut(lines[at])}" for at in range(start, min(end, start + _SHOWN_LINES))]
    return "\n".join((*shown, "     | …") if end > start + _SHOWN_LINES else shown)


def _best_start(wanted: list[str], there: list[str]) -> int | None:
    """Return from where on most lines agree; where none does, where the first lines are most alike."""
    agreeing = [
        sum(searched == line for searched, line in zip(wanted, there[at:], strict=False)) for at in range(len(there))
    ]
    most = max(agreeing, default=0)
    if most:
        return agreeing.index(most)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[0])
    best, start = 0.5, None
    for at, line in enumerate(there):
        matcher.set_seq1(line)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, start = ratio, at
    return start


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]} …"
