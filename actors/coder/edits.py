"""Search/replace blocks: applies an answer's blocks to files and shows the nearest text if a block fails.

The rules, which `prompts.py` also tells the model:

- A block is `<<<<<<< SEARCH`, existing lines, `=======`, new lines, `>>>>>>> REPLACE`, each marker on its own line. One
  fence may contain several blocks; the fence's `path=NAME` names the file and may be omitted if only one file fits.
- The searched lines must occur exactly once. Otherwise a unique match that differs only in blanks is accepted and
  noted, and its indentation is carried over. A match of part of a single line is accepted in the same way.
- Blocks are applied in order, each to the result of the earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from actors.coder.parse import OPENING, UnusableError, path_in
from messages.tasks import SourceFile

_SHOWN_CHARS = 120
_SHOWN_LINES = 16
_COMPARED_LINES = 4_000
"""Lines at the beginning of a file that are compared; 128 KiB of code have no more."""


def nearest_lines(search: Sequence[str], lines: Sequence[str]) -> str:
    """Describe the lines most similar to the searched ones, and the first difference."""
    wanted = [line.strip() for line in search if line.strip()]
    there = [(at, line.strip()) for at, line in enumerate(lines[:_COMPARED_LINES]) if line.strip()]
    start = _best_start(wanted, [line for _, line in there])
    if start is None:
        return "Nothing there is like them"
    shown = there[start : start + len(wanted)]
    found = f"Nearest are lines {shown[0][0] + 1} to {shown[-1][0] + 1}"
    first, end = shown[0][0], shown[-1][0] + 1
    numbered = [f"{at + 1:5}| {_cut(lines[at])}" for at in range(first, min(end, first + _SHOWN_LINES))]
    as_they_are = "\n".join((*numbered, "     | …") if end > first + _SHOWN_LINES else numbered)
    for searched, (at, line) in zip(wanted, shown, strict=False):
        if searched.split() != line.split():
            return f"{found}, where line {at + 1} is {_cut(line)!r} and not {_cut(searched)!r}:\n{as_they_are}"
    return f"{found}, which are laid out differently: copy them as they are:\n{as_they_are}"


def _best_start(wanted: list[str], there: list[str]) -> int | None:
    """Return the position where most lines agree; if none does, where the first line is most similar."""
    agreeing = [
        sum(searched == line for searched, line in zip(wanted, there[at:], strict=False)) for at in range(len(there))
    ]
    most = max(agreeing, default=0)
    if most:
        return agreeing.index(most)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[0])
    best, start = 0.5, None
    for at, line in enumerate(there):
        matcher.set_seq1(line)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, start = ratio, at
    return start


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]} …"


_SEARCH = re.compile(r"^ {0,3}<{5,9} ?SEARCH\b[ :]*(?P<path>\S*)\s*$")
_DIVIDER = re.compile(r"^ {0,3}={5,9}\s*$")
_REPLACE = re.compile(r"^ {0,3}>{5,9} ?REPLACE\b.*$")
_COMPLAINTS_SHOWN = 4
BLOCK = "search/replace block"
"""Name for a block in complaints."""


class SearchReplace(msgspec.Struct, frozen=True, kw_only=True):
    """One block of an answer."""

    line: int
    """Line of the block's first marker in the answer, from 1."""
    path: str
    """File path; empty if the block names none."""
    search: tuple[str, ...]
    replace: tuple[str, ...]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of an answer, and the rest of it."""

    edits: tuple[SearchReplace, ...]
    rest: str
    """The answer with the blocks and their fences blanked out."""


def holds_edits(text: str) -> bool:
    """Return True if a search/replace block begins in the text."""
    return any(_SEARCH.match(line) for line in text.splitlines())


def find_edits(text: str) -> Found:
    """Find the search/replace blocks of an answer, fenced or bare. Raises `UnusableError` if one is unfinished."""
    reader = _Reader(text.split("\n"))
    reader.read()
    return Found(edits=tuple(reader.edits), rest="\n".join(reader.rest))


def apply_edits(
    edits: Sequence[SearchReplace], files: tuple[SourceFile, ...]
) -> tuple[tuple[SourceFile, ...], tuple[str, ...]]:
    """Return the changed files in their order, and notes on inexact matches.

    Raises:
        UnusableError: a block cannot be applied; the text names each such block and the nearest lines.
    """
    texts = {file.path: file.text for file in files}
    notes: list[str] = []
    complaints: list[str] = []
    for number, edit in enumerate(edits, start=1):
        name = f"{BLOCK} {number} (line {edit.line} of the answer)"
        try:
            path = _path_of(edit, texts)
            texts[path], note = _applied(edit, texts[path])
        except UnusableError as error:
            complaints.append(f"{name}: {error}")
            continue
        if note:
            notes.append(f"{name}: {note}")
    if complaints:
        more = len(complaints) - _COMPLAINTS_SHOWN
        left_out = (f"and {more} more blocks",) if more > 0 else ()
        raise UnusableError("\n".join((*complaints[:_COMPLAINTS_SHOWN], *left_out)))
    if all(texts[file.path] == file.text for file in files):
        raise UnusableError("the search/replace blocks change nothing")
    return tuple(SourceFile(path=path, text=text) for path, text in texts.items()), tuple(notes)


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.removesuffix("\r") for line in lines]
        self.rest = list(lines)
        self.edits: list[SearchReplace] = []
        self._at = 0
        self._fence: tuple[int, int, str] | None = None
        """First line, length, and path of the open fence."""
        self._fence_edits = 0

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if (opening := _SEARCH.match(line)) is not None:
                self._take(opening["path"])
            else:
                self._take_fence(line)
                self._at += 1

    def _take_fence(self, line: str) -> None:
        fence = OPENING.match(line)
        if fence is None:
            return
        if self._fence is None:
            self._fence = (self._at, len(fence["ticks"]), path_in(fence["info"]) or "")
            self._fence_edits = len(self.edits)
        elif not fence["info"].strip() and len(fence["ticks"]) >= self._fence[1]:
            if len(self.edits) > self._fence_edits:
                self._blank(self._fence[0], self._at + 1)
            self._fence = None

    def _take(self, path: str) -> None:
        start = self._at
        divider = self._next(_DIVIDER, start, "'=======' between what is searched and what takes its place")
        end = self._next(_REPLACE, divider, "'>>>>>>> REPLACE' at its end")
        said = path or (self._fence[2] if self._fence else "")
        self.edits.append(
            SearchReplace(
                line=start + 1,
                path=said,
                search=tuple(self._lines[start + 1 : divider]),
                replace=tuple(self._lines[divider + 1 : end]),
            )
        )
        self._blank(start, end + 1)
        self._at = end + 1

    def _next(self, marker: re.Pattern[str], start: int, what: str) -> int:
        for at in range(start + 1, len(self._lines)):
            if marker.match(self._lines[at]):
                return at
            if _SEARCH.match(self._lines[at]):
                break
        first = self._lines[start] if _SEARCH.match(self._lines[start]) else "the block"
        raise UnusableError(f"{first.strip()!r} on line {start + 1} of the answer: no line {what} follows")

    def _blank(self, start: int, end: int) -> None:
        self.rest[start:end] = [""] * (end - start)


def _path_of(edit: SearchReplace, texts: dict[str, str]) -> str:
    if edit.path:
        if edit.path not in texts:
            raise UnusableError(f"there is no file {edit.path!r}; there is {', '.join(map(repr, texts))}")
        return edit.path
    if len(texts) == 1:
        return next(iter(texts))
    fitting = [path for path, text in texts.items() if _exact(edit.search, text.split("\n"))]
    if len(fitting) > 1:
        raise UnusableError(f"its lines are in {' and in '.join(map(repr, fitting))}: say which with path=NAME")
    return fitting[0] if fitting else next(iter(texts))


def _applied(edit: SearchReplace, text: str) -> tuple[str, str]:
    if not any(line.strip() for line in edit.search):
        raise UnusableError("it searches for nothing: name lines that are there, or give the whole file")
    lines = text.split("\n")
    if places := _exact(edit.search, lines):
        _check_single(places, "are there")
        return _spliced(lines, places[0], len(edit.search), edit.replace), ""
    if len(edit.search) == 1 and len(edit.replace) == 1 and text.count(edit.search[0].strip()) == 1:
        searched = edit.search[0].strip()
        line = text[: text.index(searched)].count("\n") + 1
        return text.replace(searched, edit.replace[0].strip()), f"matches a part of line {line}"
    searched_lines = _without_blank_ends(edit.search)
    loose = [place for place in _loose(searched_lines, lines) if _shift(searched_lines, lines, place) is not None]
    if not loose:
        raise UnusableError(f"its lines are not there. {nearest_lines(edit.search, lines)}")
    _check_single(loose, "are there but for blanks")
    shift = _shift(searched_lines, lines, loose[0]) or (0, "")
    moved = [_moved(line, shift) for line in _without_blank_ends(edit.replace)]
    return (
        _spliced(lines, loose[0], len(searched_lines), moved),
        f"matches lines {loose[0] + 1} to {loose[0] + len(searched_lines)} but for blanks",
    )


def _check_single(places: list[int], how: str) -> None:
    if len(places) > 1:
        where = ", ".join(str(place + 1) for place in places[:6])
        raise UnusableError(f"its lines {how} {len(places)} times (from lines {where}): search for more of them")


def _exact(search: Sequence[str], lines: list[str]) -> list[int]:
    wanted = list(search)
    return [at for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted]


def _loose(search: Sequence[str], lines: list[str]) -> list[int]:
    wanted = [" ".join(line.split()) for line in search]
    there = [" ".join(line.split()) for line in lines]
    return [at for at in range(len(there) - len(wanted) + 1) if there[at : at + len(wanted)] == wanted]


def _shift(search: Sequence[str], lines: list[str], place: int) -> tuple[int, str] | None:
    """Return the common change of indentation; None if it differs between lines.

    The result is the number of blanks to remove and the text to put in front.
    """
    shifts = {
        _indentation_change(searched, there)
        for searched, there in zip(search, lines[place : place + len(search)], strict=True)
        if searched.strip()
    }
    return shifts.pop() if len(shifts) == 1 else None


def _indentation_change(searched: str, there: str) -> tuple[int, str]:
    old, new = (line[: len(line) - len(line.lstrip())] for line in (searched, there))
    if new.endswith(old):
        return 0, new[: len(new) - len(old)]
    if old.endswith(new):
        return len(old) - len(new), ""
    return len(old), new


def _moved(line: str, shift: tuple[int, str]) -> str:
    taken_off, before = shift
    if not line.strip():
        return line
    return before + (line[taken_off:] if not line[:taken_off].strip() else line.lstrip())


def _without_blank_ends(lines: Sequence[str]) -> tuple[str, ...]:
    filled = [at for at, line in enumerate(lines) if line.strip()]
    return tuple(lines[filled[0] : filled[-1] + 1]) if filled else ()


def _spliced(lines: list[str], start: int, count: int, replacement: Sequence[str]) -> str:
    return "\n".join([*lines[:start], *replacement, *lines[start + count :]])
