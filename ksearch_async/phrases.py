"""How numbers, durations and long texts are put for people. Pure: knows nothing of runs."""

from __future__ import annotations


def fitted(line: str, columns: int | None) -> str:
    """Return the line, its end left out where it is longer than the columns there are; leading blanks stay."""
    return line if columns is None or len(line) <= columns else line[: columns - 1].rstrip() + "…"


def shortened(text: str, width: int) -> str:
    """Return the text on one line, at most `width` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its word: `1 branch`, `4 branches`."""
    return f"{count:,} {one if count == 1 else many}"


def rough_duration(seconds: float) -> str:
    """Return seconds in one unit: `48 s`, `3 min`, `5 h`, `12 d`."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def duration(seconds: float) -> str:
    """Return seconds for people: `48.2 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"
