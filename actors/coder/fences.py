"""Fenced blocks of an answer, as they stand there."""

from __future__ import annotations

import re

import msgspec

OPENING = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`]*)$")
_CLOSING = re.compile(r"^ {0,3}(?P<ticks>`{3,})\s*$")
_PATH_ATTRIBUTE = re.compile(r"(?:^|\s)path=(?P<path>\S+)")
_PATH_COMMENT = re.compile(r"^\s*(?://|#|/\*)\s*(?:file|path)\s*[:=]\s*(?P<path>\S+)")


class UnusableError(Exception):
    """An answer holds no candidate; the text says why."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block of an answer."""

    line: int
    """Line of the opening fence, from 1."""
    tag: str
    """First word of the info string in lower case; empty without one."""
    path: str | None
    text: str
    is_closed: bool = True
    """False: the answer ended inside it, and was said to be complete."""


def read_blocks(text: str, *, is_complete: bool = False) -> list[Block]:
    """Split an answer into its fenced blocks.

    Args:
        text: the answer.
        is_complete: its author ended it: a last fence that is open was forgotten, not cut off.

    Raises:
        UnusableError: a fence is never closed.
    """
    lines = text.split("\n")
    blocks: list[Block] = []
    position = 0
    while position < len(lines):
        opening = OPENING.match(lines[position].rstrip("\r"))
        if opening is None:
            position += 1
            continue
        end = _closing_line(lines, position + 1, len(opening["ticks"]))
        if end is None and not is_complete:
            raise UnusableError(
                f"the fence opened on line {position + 1} of the answer is never closed: the answer was cut off, "
                f"or its last line is not {opening['ticks']}"
            )
        inside = "\n".join(lines[position + 1 : end])
        blocks.append(_block(position + 1, opening["info"], inside, is_closed=end is not None))
        position = len(lines) if end is None else end + 1
    return blocks


def path_in(info: str) -> str | None:
    """Return the path that a fence's info string names."""
    named = _PATH_ATTRIBUTE.search(info)
    return named["path"].strip("\"'") if named else None


def _closing_line(lines: list[str], start: int, ticks: int) -> int | None:
    for position in range(start, len(lines)):
        closing = _CLOSING.match(lines[position])
        if closing is not None and len(closing["ticks"]) >= ticks:
            return position
    return None


def _block(line: int, info: str, text: str, *, is_closed: bool) -> Block:
    words = info.split()
    tag = words[0].lower() if words and "=" not in words[0] else ""
    comment = _PATH_COMMENT.match(text.split("\n", 1)[0])
    path = path_in(info) or (comment["path"].strip("\"'") if comment else None)
    return Block(line=line, tag=tag, path=path, text=text, is_closed=is_closed)
