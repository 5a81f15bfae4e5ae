"""By what a planner leads a distributed run, beside others that stand by for it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Mandate(msgspec.Struct, frozen=True, kw_only=True):
    """One leadership of one process, from its lease's beginning to its end."""

    holder: str
    """Name of the process."""
    session: str
    """Part of the ids of what only this leadership may say: no other one has it. Letters and digits."""
    check: Callable[[], None]
    """Raises `ConflictError` once the leadership is over."""
    watches_workers: bool = True
    """Workers say that they are there, so it can be told when there are none."""
