"""Output of candidates and compilers, made safe to show."""

from __future__ import annotations

import itertools


def printable(text: str) -> str:
    """Replace all that a terminal would act upon, or that would hide what stands there; lines and tabs remain."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def folded(text: str) -> str:
    """Write equal lines in a row once, with their number: a candidate prints the same in every call."""
    runs = [(line, sum(1 for _ in same)) for line, same in itertools.groupby(text.split("\n"))]
    return "\n".join(line if count == 1 else f"{line} ({count} times)" for line, count in runs)
