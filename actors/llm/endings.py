"""The end of an answer: detects while streaming that an answer is complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from actors.llm.base import Ending
from actors.llm.reasoning import MARK_CHARS, holds_mark, split_reasoning

_MOST_LOOKS: Final = 64
"""How often a whole text is looked at; an answer of more pieces is read to its end."""
UNPROVEN_CHARS: Final = 65_536
"""About 16,000 tokens: no draft is followed by more reasoning, nearly."""
_LINE_CHARS: Final = 1000
"""What is kept of a line: fences are shorter."""
_FENCE: Final = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`]*)$")


class OutsideReasoning:
    """Shows another ending what stands outside of marked reasoning. Never whole inside of it."""

    def __init__(self, make: Callable[[], Ending]) -> None:
        """Begin; `make` gives an ending that has read nothing, again wherever reasoning begins or ends."""
        self._make = make
        self._inner = make()
        self._text: list[str] = []
        self._tail = ""
        self._is_open = False
        self._looks = 0

    @property
    def patience_chars(self) -> int:
        """See `actors.llm.base.Ending`."""
        return self._inner.patience_chars

    def take(self, piece: str) -> bool:
        """See `actors.llm.base.Ending`."""
        self._text.append(piece)
        window, known = self._tail + piece, len(self._tail)
        self._tail = window[-MARK_CHARS:]
        if self._looks < _MOST_LOOKS and holds_mark(window, known):
            self._looks += 1
            spoken = split_reasoning("".join(self._text))
            self._is_open = spoken.is_open or self._looks == _MOST_LOOKS
            self._inner = self._make()
            return self._inner.take(spoken.answer) and not self._is_open
        return not self._is_open and self._inner.take(piece)


class Unproven:
    """Another ending, with the patience for endpoints of which it is not known that they mark where reasoning begins.

    Where a template opens the reasoning in the prompt, nothing in an answer shows that it begins with reasoning until
    that is over.
    """

    patience_chars = UNPROVEN_CHARS

    def __init__(self, inner: Ending) -> None:
        self.take = inner.take


class JsonEnding:
    """Whole while no JSON object is open and one that is there can be used. One that begins later is waited for."""

    patience_chars = 256
    """About 64 tokens: a closing fence and a parting sentence."""

    def __init__(self, is_usable: Callable[[str], bool]) -> None:
        """Begin; `is_usable` is asked about the whole text whenever an outermost object closes."""
        self._is_usable = is_usable
        self._text: list[str] = []
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._looks = 0
        self._whole = False

    def take(self, piece: str) -> bool:
        """See `actors.llm.base.Ending`."""
        self._text.append(piece)
        if self._closes(piece) and not self._whole and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._whole = self._is_usable("".join(self._text))
        return self._whole and not self._depth

    def _closes(self, piece: str) -> bool:
        """Read on; say whether an outermost object was closed. Quotes count inside objects only."""
        closed = False
        for letter in piece:
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = letter == "\\"
                self._quoted = letter != '"'
            elif letter == '"':
                self._quoted = self._depth > 0
            elif letter == "{":
                self._depth += 1
            elif letter == "}" and self._depth:
                self._depth -= 1
                closed = closed or self._depth == 0
        return closed


class FenceEnding:
    """Whole while no fenced block is open and what is there can be used. A block that begins later is waited for."""

    patience_chars = 1024
    """About 256 tokens: what may be said between the files of one program."""

    def __init__(self, is_usable: Callable[[str], bool]) -> None:
        """Begin; `is_usable` is asked about the whole text whenever a fenced block closes."""
        self._is_usable = is_usable
        self._text: list[str] = []
        self._line = ""
        self._ticks = 0
        """Of the fence that is open; 0: none is."""
        self._looks = 0
        self._usable = False

    def take(self, piece: str) -> bool:
        """See `actors.llm.base.Ending`."""
        self._text.append(piece)
        *lines, rest = (self._line + piece).split("\n")
        self._line = rest[:_LINE_CHARS]
        closed = [self._reads(line.rstrip("\r")) for line in lines]
        if any(closed) and not self._ticks and not self._usable and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._usable = self._is_usable("".join(self._text))
        return self._usable and not self._ticks and not self._line.lstrip(" ").startswith("`")

    def _reads(self, line: str) -> bool:
        """Take a line; say whether it closes a block."""
        fence = _FENCE.match(line)
        if fence is None:
            return False
        if not self._ticks:
            self._ticks = len(fence["ticks"])
            return False
        if fence["info"].strip() or len(fence["ticks"]) < self._ticks:
            return False
        self._ticks = 0
        return True
