"""Figures as parts of a page: identifiers of their own, and colours that follow the page from light to dark."""

from __future__ import annotations

import re

from ksearch_async.report.figures import ink
from ksearch_async.report.gallery import rendered
from ksearch_async.report.markup import Markup, joined, tag, trusted

_VARIABLES = {
    ink.INK: "--ink",
    ink.SOFT: "--soft",
    ink.FAINT: "--faint",
    ink.PAPER: "--paper",
    ink.BLUE: "--blue",
    ink.ORANGE: "--orange",
    ink.GREEN: "--green",
    ink.PURPLE: "--purple",
    ink.RED: "--red",
    ink.SKY: "--sky",
}
"""By the colour that a figure is drawn with; `page.css` has them for light and dark."""
_COLOUR = re.compile("|".join(_VARIABLES))
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_IDENTIFIER = re.compile(r'(\bid="|href="#|url\(#)')
_HEAD = re.compile(r"\A.*?<svg [^>]*?viewBox=\"([0-9. ]+)\"[^>]*>\s*<metadata>.*?</metadata>", re.DOTALL)


def inlined(picture: ink.Picture, number: int) -> Markup:
    """Return a picture with its caption.

    Args:
        picture: what is drawn.
        number: of all pictures of the page, from 1; it keeps their identifiers apart.
    """
    return tag(
        "figure",
        trusted(_as_part(rendered(picture, "svg").decode(), picture.title, number)),
        tag("figcaption", tag("b", f"Figure {number}. {picture.title}."), " ", picture.caption),
    )


def _as_part(svg: str, title: str, number: int) -> str:
    """Return a drawn figure without its prologue. It holds shapes alone: texts are drawn as paths."""
    body = _HEAD.sub("", _COMMENT.sub("", svg), count=1)
    view = _HEAD.match(svg)
    assert view is not None, "matplotlib writes a viewBox and metadata"  # noqa: S101 - our own file
    body = _IDENTIFIER.sub(rf"\1f{number}-", body)
    body = _COLOUR.sub(lambda found: f"var({_VARIABLES[found.group()]})", body)
    named = joined(title).html
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{named}" viewBox="{view.group(1)}">{body}'
    )
