"""Where a text that was searched in vain is nearest: said so that its author sees what differs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

_SHOWN_CHARS = 120
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
    for searched, (at, line) in zip(wanted, shown, strict=False):
        if searched.split() != line.split():
            return (
                f"Nearest are lines {shown[0][0] + 1} to {shown[-1][0] + 1}, where line {at + 1} is {_cut(line)!r} "
                f"and not {_cut(searched)!r}"
            )
    return (
        f"Nearest are lines {shown[0][0] + 1} to {shown[-1][0] + 1}, which are laid out differently: "
        f"copy them as they are, from {_cut(shown[0][1])!r} on"
    )


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
