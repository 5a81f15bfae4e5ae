"""The text of an answer: marked reasoning apart from the rest, and its completeness while it streams.

Open models served without a reasoning parser put their reasoning into the content, in marks of their family. Rules:

- An opening mark counts at the beginning of a line, outside of fenced blocks: code and JSON may name it.
- A closing mark ends its family's reasoning anywhere, unless quoted or in a fenced block that is closed after it.
- A closing mark without an opening one ends reasoning that began in the prompt (templates of DeepSeek-R1 and QwQ), if
it stands at the beginning or the end of a line, or is a special token.
- Reasoning without an end was cut off.

Not covered: reasoning without any marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from actors.llm.base import Ending

_TAGS: Final = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
_FAMILIES: Final = (
    *((f"(?i:<{tag}>)", f"(?i:</{tag}>)") for tag in _TAGS),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # OpenThinker, Sky-T1
    (  # gpt-oss: openai/harmony; everything before the channel `final`
        r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b[^<\n]*(?:<\|constrain\|>[^<\n]*)?<\|message\|>",
        r"(?:<\|start\|>assistant)?<\|channel\|>final\b[^<\n]*(?:<\|constrain\|>[^<\n]*)?<\|message\|>",
    ),
    (r"\Aanalysis(?=[A-Z])", "assistantfinal"),  # the same where the server leaves special tokens out
)
_FENCE: Final = r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`\n]*)$"
_OPENINGS: Final = "|".join(f"(?P<open{number}>{opening})" for number, (opening, _) in enumerate(_FAMILIES))
_CLOSINGS: Final = "|".join(f"(?P<close{number}>{closing})" for number, (_, closing) in enumerate(_FAMILIES))
_MARK: Final = re.compile(
    rf"{_FENCE}|(?=[<\[◁]|analysis|assistantf)(?:{_OPENINGS}|{_CLOSINGS})", re.MULTILINE
)  # the look ahead is for speed
_LAST: Final = re.compile(r"[>\]▷]|assistantfinal|analysis[A-Z]")
"""Last characters of marks."""
_END_TOKENS: Final = re.compile(
    r"(?:(?:<\|(?:return|end|im_end|eot_id|endoftext)\|>|<\uff5cend▁of▁sentence\uff5c>)\s*)+\Z"
)
_QUOTES: Final = frozenset("\"'`")
CUT_IN_REASONING: Final = (
    "the answer ends inside its reasoning, which is never closed: reason more briefly, then answer"
)
"""Complaint about an answer without anything usable outside its reasoning."""
MARK_CHARS: Final = 80
"""Length of the longest mark."""
_NEAR_CHARS: Final = 200
"""Characters of a line that are examined on either side of a mark."""


class Spoken(NamedTuple):
    """An answer in its two parts."""

    answer: str
    """The text without the reasoning, with unchanged line numbers."""
    reasoning: str
    is_open: bool
    """The text ends inside reasoning."""
    began_inside: bool
    """The text closes reasoning that it did not open."""


def split_reasoning(text: str) -> Spoken:
    """Split a text into reasoning and answer. Total: a text without marks is all answer."""
    reader = _Reader(text)
    marks = list(_MARK.finditer(text))
    closes_fence, after = False, list[bool]()
    for mark in reversed(marks):
        after.append(closes_fence)
        if mark["ticks"] is not None:
            closes_fence = not mark["info"].strip()
    for mark, is_closed_after in zip(marks, reversed(after), strict=True):
        reader.take(mark, is_closed_after=is_closed_after)
    return reader.spoken()


def holds_mark(text: str, since: int) -> bool:
    """Return True if a mark of reasoning ends in a text at `since` or later, whether it counts or not."""
    if _LAST.search(text, max(0, since - len("assistantfinal"))) is None:
        return False
    return any(mark["ticks"] is None and mark.end() >= since for mark in _MARK.finditer(text))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[tuple[bool, str]] = []
        """Parts of the text; True for reasoning."""
        self._since = 0
        self._open = ""
        """Family of the reasoning that is open; empty: none."""
        self._ticks = 0
        """Length of the open fence; 0: none."""
        self._began_inside = 0
        """Number of reasoning parts that were not opened in the text."""

    def take(self, mark: re.Match[str], *, is_closed_after: bool) -> None:
        """Take a mark; `is_closed_after`: the next fence line can only close a block."""
        if mark["ticks"] is not None:
            self._take_fence(mark)
            return
        kind = mark.lastgroup or ""
        family = kind.removeprefix("open").removeprefix("close")
        if kind.startswith("open"):
            if not self._open and not self._ticks and not self._line_before(mark).strip():
                self._turn(mark, is_reasoning=False)
                self._open = family
        elif (self._ticks and is_closed_after) or self._is_quoted(mark):
            return
        elif family == self._open:
            self._turn(mark, is_reasoning=True)
            self._open = ""
        elif not self._open and self._is_orphan(mark):
            self._turn(mark, is_reasoning=True)
            self._began_inside = len(self._parts)

    def spoken(self) -> Spoken:
        parts = [(True, part) for _, part in self._parts[: self._began_inside]]
        parts += [*self._parts[self._began_inside :], (bool(self._open), self._text[self._since :])]
        answer = "".join("\n" * part.count("\n") if is_reasoning else part for is_reasoning, part in parts)
        return Spoken(
            answer=_END_TOKENS.sub("", answer),
            reasoning="".join(part for is_reasoning, part in parts if is_reasoning),
            is_open=bool(self._open),
            began_inside=self._began_inside > 0,
        )

    def _turn(self, mark: re.Match[str], *, is_reasoning: bool) -> None:
        self._parts.append((is_reasoning, self._text[self._since : mark.start()]))
        self._since = mark.end()
        self._ticks = 0

    def _take_fence(self, fence: re.Match[str]) -> None:
        if not self._ticks:
            self._ticks = len(fence["ticks"])
        elif len(fence["ticks"]) >= self._ticks and not fence["info"].strip():
            self._ticks = 0

    def _line_before(self, mark: re.Match[str]) -> str:
        return self._text[max(self._since, mark.start() - _NEAR_CHARS) : mark.start()].rpartition("\n")[2]

    def _is_quoted(self, mark: re.Match[str]) -> bool:
        before, after = self._text[max(0, mark.start() - 1) : mark.start()], self._text[mark.end() : mark.end() + 1]
        return before in _QUOTES and after in _QUOTES

    def _is_orphan(self, mark: re.Match[str]) -> bool:
        if mark[0].isalpha():
            return False
        line_after = self._text[mark.end() : mark.end() + _NEAR_CHARS].partition("\n")[0]
        return mark[0].startswith("<|") or not line_after.strip() or not self._line_before(mark).strip()


_MOST_LOOKS: Final = 64
"""Most looks at a whole text. An answer in more pieces is read to its end."""
UNPROVEN_CHARS: Final = 65_536
"""About 16,000 tokens: after a longer draft hardly any model goes on reasoning."""
_LINE_CHARS: Final = 1000
"""Characters of a line that are kept. Fences are shorter."""
_FENCE_LINE: Final = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`]*)$")


class OutsideReasoning:
    """Passes the text outside marked reasoning to another ending. Never complete inside reasoning."""

    def __init__(self, make: Callable[[], Ending]) -> None:
        """Begin. `make` returns a fresh ending, each time reasoning begins or ends."""
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
    """Another ending with more patience, for endpoints that may not mark the beginning of reasoning.

    A template may open the reasoning in the prompt: then nothing in the answer shows it until it is over.
    """

    patience_chars = UNPROVEN_CHARS

    def __init__(self, inner: Ending) -> None:
        self.take = inner.take


class _Looking:
    """Checks the whole text read so far, until it is usable."""

    def __init__(self, is_usable: Callable[[str], bool]) -> None:
        self._is_usable = is_usable
        self._text: list[str] = []
        self._looks = 0
        self._usable = False

    def _look(self) -> None:
        if not self._usable and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._usable = self._is_usable("".join(self._text))


class JsonEnding(_Looking):
    """Complete while no JSON object is open and one of them is usable. Waits for a later one."""

    patience_chars = 256
    """About 64 tokens: a closing fence and a parting sentence."""

    def __init__(self, is_usable: Callable[[str], bool]) -> None:
        """Begin. `is_usable` is called with the whole text whenever an outermost object closes."""
        super().__init__(is_usable)
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def take(self, piece: str) -> bool:
        """See `actors.llm.base.Ending`."""
        self._text.append(piece)
        if self._closes(piece):
            self._look()
        return self._usable and not self._depth

    def _closes(self, piece: str) -> bool:
        """Read on; True if an outermost object was closed. Quotes count inside objects only."""
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


class FenceEnding(_Looking):
    """Complete while no fenced block is open and the text is usable. Waits for a later block."""

    patience_chars = 1024
    """About 256 tokens: text between the files of one program."""

    def __init__(self, is_usable: Callable[[str], bool]) -> None:
        """Begin. `is_usable` is called with the whole text whenever a fenced block closes."""
        super().__init__(is_usable)
        self._line = ""
        self._ticks = 0
        """Length of the open fence; 0: none."""

    def take(self, piece: str) -> bool:
        """See `actors.llm.base.Ending`."""
        self._text.append(piece)
        *lines, rest = (self._line + piece).split("\n")
        self._line = rest[:_LINE_CHARS]
        closed = [self._reads(line.rstrip("\r")) for line in lines]
        if any(closed) and not self._ticks:
            self._look()
        return self._usable and not self._ticks and not self._line.lstrip(" ").startswith("`")

    def _reads(self, line: str) -> bool:
        fence = _FENCE_LINE.match(line)
        if fence is None:
            return False
        if not self._ticks:
            self._ticks = len(fence["ticks"])
            return False
        if fence["info"].strip() or len(fence["ticks"]) < self._ticks:
            return False
        self._ticks = 0
        return True
