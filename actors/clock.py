"""The wall clock's ISO stamps."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Return the wall clock as ISO 8601 in UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
