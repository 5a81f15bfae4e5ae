"""Tables as plain text, fitted to a width: what matters least gives way first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ksearch_async.phrases import columns_of, padded, plain, shortened

_GAP = "  "
_NARROWEST = 8


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    title: str
    number: bool = False
    """Aligned right."""
    rank: int = 0
    """Columns of a higher rank are left out first where the width does not do; those of rank 0 stay."""
    least: int | None = None
    """It is cut to so many characters before other columns are left out; null: it is not."""


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """Yield a line of titles, then one per row.

    Args:
        columns: what the cells of each row are.
        rows: cells, as many as there are columns.
        width: columns of the terminal; null: nothing is left out.
    """
    grid = [[column.title.upper() for column in columns], *([plain(cell) for cell in row] for row in rows)]
    widths = [max(columns_of(row[at]) for row in grid) for at in range(len(columns))]
    least = [min(wide, columns[at].least or wide) for at, wide in enumerate(widths)]
    shown = list(range(len(columns)))
    while width is not None and _total(least, shown) > width and any(columns[at].rank for at in shown):
        shown.remove(max(shown, key=lambda at: columns[at].rank))
    if width is not None and (excess := _total(widths, shown) - width) > 0:
        widest = max(shown, key=lambda at: widths[at])
        widths[widest] = max(_NARROWEST, widths[widest] - excess)
    for row in grid:
        cells = [_cell(row[at], widths[at], columns[at]) for at in shown]
        yield _GAP.join(cells).rstrip()


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1)


def _cell(text: str, width: int, column: Column) -> str:
    return padded(shortened(text, width), width, right=column.number)
