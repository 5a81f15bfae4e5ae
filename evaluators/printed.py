"""What candidates and compilers print, as it may be shown to people."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace all that a terminal would act upon, or that would hide what stands there; lines and tabs remain."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
