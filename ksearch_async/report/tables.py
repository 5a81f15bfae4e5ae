"""Tables and lists of the page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ksearch_async.report.markup import Child, Markup, tag


def table(titles: Sequence[str], rows: Iterable[Sequence[Child]], *, numbers: Collection[int] = ()) -> Markup:
    """Return a table.

    Args:
        titles: of the columns.
        rows: cells, as many as there are titles.
        numbers: places of the columns that are aligned right.
    """

    def cells(name: str, row: Sequence[Child]) -> list[Markup]:
        return [
            tag(name, cell, class_="number") if place in numbers else tag(name, cell) for place, cell in enumerate(row)
        ]

    head = tag("thead", tag("tr", cells("th", titles)))
    return tag("div", tag("table", head, tag("tbody", [tag("tr", cells("td", row)) for row in rows])), class_="scroll")


def definitions(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return a list of names and what they are; those that are nothing are left out."""
    return tag("dl", [(tag("dt", name), tag("dd", told)) for name, told in pairs if told not in ("", None)])
