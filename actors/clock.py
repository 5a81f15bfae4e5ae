"""ISO timestamps of the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Return the current wall-clock time as ISO 8601 in UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
