"""Draws numbers with blocks: a line of them, or a few lines. Knows no terminal."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_MARK = "┄"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values, at most `width` of them (the last of each stretch), in eighths of the largest; 0 is blank."""
    return chart_rows(values, min(width, len(values)), 1)[0]


def chart_rows(values: Sequence[float], width: int, height: int, *, mark: float | None = None) -> list[str]:
    """Draw values as columns from 0 up, stretched or thinned out (the last of each stretch) to the width; 0 is blank.

    Args:
        values: none below 0.
        width: columns of each line.
        height: lines.
        mark: a value that is marked where nothing is drawn.

    Returns:
        The lines, the uppermost first.
    """
    top = max(values, default=0.0)
    levels = [_level(value, top, height) for value in _resampled(values, width)]
    marked = None if mark is None or not 0 < mark < top else int(mark / top * height)
    return [_row(levels, above, _MARK if above == marked else " ") for above in reversed(range(height))]


def _resampled(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    return [values[max(0, -(-(index + 1) * count // width) - 1)] for index in range(width)] if count else []


def _level(value: float, top: float, height: int) -> int:
    """Return how many eighths of a line a value is high; what is not 0 is seen."""
    return max(1, round(value / top * 8 * height)) if value > 0 else 0


def _row(levels: Sequence[int], above: int, blank: str) -> str:
    filled = (min(8, max(0, level - 8 * above)) for level in levels)
    return "".join(_LEVELS[eighths - 1] if eighths else blank for eighths in filled)
