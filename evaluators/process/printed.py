"""Output of candidates and compilers, made safe to show."""

from __future__ import annotations

import itertools


def printable(text: str) -> str:
    """Replace everything that a terminal would act upon or that would hide text; lines and tabs remain."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def folded(text: str) -> str:
    """Collapse equal consecutive lines into one with their number: candidates print the same in every call."""
    runs = [(line, sum(1 for _ in same)) for line, same in itertools.groupby(text.split("\n"))]
    return "\n".join(line if count == 1 else f"{line} ({count} times)" for line, count in runs)
