"""HTML of the report: escaped text, tags, tables and lists.

Everything that is not a `Markup` is text, and is escaped; only the functions here make a `Markup`. Untrusted texts
(titles, reasons, sources) also lose unprintable characters: terminal escapes, and marks that change the direction of
text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import TypeAlias

import msgspec

from evaluators.process.printed import printable


class Markup(msgspec.Struct, frozen=True):
    """A piece of HTML."""

    html: str


Child: TypeAlias = "str | int | Markup | Iterable[Child] | None"
"""Text and numbers are escaped; None is left out."""

_VOID = frozenset({"br", "hr", "meta", "col"})


def tag(name: str, /, *children: Child, attributes: Mapping[str, str] | None = None, **more: str) -> Markup:
    """Return an element."""
    named = {key.rstrip("_"): value for key, value in more.items()} | dict(attributes or {})
    told = "".join(f' {key}="{_escaped(value)}"' for key, value in named.items())
    inner = joined(*children).html
    return Markup(f"<{name}{told}>" if name in _VOID else f"<{name}{told}>{inner}</{name}>")


def joined(*children: Child) -> Markup:
    """Return the children, one after the other."""
    return Markup("".join(map(_html, children)))


def trusted(html: str) -> Markup:
    """Return HTML that we made and that contains no unescaped untrusted text: a drawn figure, a style."""
    return Markup(html)


def _html(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child.html
    if isinstance(child, str | int):
        return _escaped(str(child))
    return "".join(map(_html, child))


def _escaped(text: str) -> str:
    return escape(printable(text), quote=True)


def table(titles: Sequence[str], rows: Iterable[Sequence[Child]], *, numbers: Collection[int] = ()) -> Markup:
    """Return a table."""

    def cells(name: str, row: Sequence[Child]) -> list[Markup]:
        return [
            tag(name, cell, class_="number") if place in numbers else tag(name, cell) for place, cell in enumerate(row)
        ]

    head = tag("thead", tag("tr", cells("th", titles)))
    return tag("div", tag("table", head, tag("tbody", [tag("tr", cells("td", row)) for row in rows])), class_="scroll")


def definitions(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return a list of names and their values; empty values are left out."""
    return tag("dl", [(tag("dt", name), tag("dd", told)) for name, told in pairs if told not in ("", None)])
