"""One thing that was found in a candidate's text."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """A construct and its place."""

    what: str
    line: int
    is_forbidden: bool = False
    """True if no honest kernel contains it."""
