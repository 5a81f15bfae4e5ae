"""From a model's answer to a candidate, and back. Code is never altered: what stands between the fences is the file.

The rules, for people and for `prompts.py`, which tells them to the model:

- A file is one fenced block: a line of three or more backticks with a language tag and, where there are several files,
  `path=NAME`; it ends with a line of at least as many backticks and nothing else. The newline before that line belongs
  to the fence, every other character to the file.
- A block without `path=` may name its file in a comment on its first line (`// file: NAME`); the line stays.
- The main file is the largest block that holds the entry point's name, headers aside; of equal ones the last. Where a
  task has no entry point, every block that is not empty may be it.
- Named blocks are all part of the candidate. Unnamed blocks besides the main file are illustrations and are left out.
"""

from __future__ import annotations

import re

import msgspec

from messages.base import Language
from messages.tasks import Candidate, SourceFile

MAX_SOURCE_BYTES = 256 * 1024
"""Larger sources are refused: no kernel needs them, and every prompt of the branch would carry them."""
MAX_FILES = 16
MAX_PATH_CHARS = 120

_TAGS: dict[Language, tuple[str, ...]] = {
    "cpp": ("cpp", "c++", "cc", "cxx", "c", "h", "hpp"),
    "cuda": ("cuda", "cu", "cpp", "c++", "c", "h", "cuh"),
    "triton": ("python", "py", "python3", "triton"),
    "python": ("python", "py", "python3"),
}
MAIN_PATHS: dict[Language, str] = {
    "cpp": "kernel.cpp",
    "cuda": "kernel.cu",
    "triton": "kernel.py",
    "python": "program.py",
}
"""What the main file is called if the answer does not say."""
_HEADERS = (".h", ".hpp", ".hh", ".cuh", ".inc")
_DECLINED = re.compile(r"\s*nothing further\b[:.,]?(?P<why>.*)", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`]*)$")
_CLOSING = re.compile(r"^ {0,3}(?P<ticks>`{3,})\s*$")
_PATH_ATTRIBUTE = re.compile(r"(?:^|\s)path=(?P<path>\S+)")
_PATH_COMMENT = re.compile(r"^\s*(?://|#|/\*)\s*(?:file|path)\s*[:=]\s*(?P<path>\S+)")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_PROSE_SHOWN = 400


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block of an answer."""

    line: int
    """Line of the opening fence, from 1."""
    tag: str
    """First word of the info string in lower case; empty without one."""
    path: str | None
    text: str


class _UnusableError(Exception):
    """The answer holds no candidate; the text says why."""


def parse_answer(text: str, *, language: Language, entry_point: str) -> tuple[Candidate | None, str]:
    """Find the candidate in an answer.

    Returns:
        The candidate and an empty text, or None and what was wrong, in words that help to do better.
    """
    try:
        blocks = _code_blocks(text, language)
        main = _main_block(blocks, entry_point)
        files = _files(blocks, main, language)
    except _UnusableError as error:
        return None, str(error)
    return Candidate(language=language, entry_point=entry_point, files=files), ""


def declines(text: str) -> str:
    """Return why an answer sees nothing further worth trying; empty if it says no such thing, or holds a block."""
    said = _DECLINED.match(text)
    if said is None or _blocks(text):
        return ""
    return " ".join(said["why"].split()) or "it gives no reason"


def render_files(files: tuple[SourceFile, ...], language: Language) -> str:
    """Write files as fenced blocks; the fences are longer than any run of backticks inside.

    `parse_answer` returns the same files for any text, as long as the main one comes first and is the largest with the
    entry point, and all have usable paths.
    """
    return "\n\n".join(_fenced(file, _TAGS[language][0]) for file in files)


def _fenced(file: SourceFile, tag: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", file.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag} path={file.path}\n{file.text}\n{fence}"


def _code_blocks(text: str, language: Language) -> list[_Block]:
    """Return the blocks that may be files of this language.

    Raises:
        _UnusableError: there are none.
    """
    blocks = _blocks(text)
    if not blocks:
        said = " ".join(text.split())
        if not said:
            raise _UnusableError("the answer is empty")
        raise _UnusableError(f"no code block (between two lines of three backticks) in: {said[:_PROSE_SHOWN]}")
    usable = [block for block in blocks if block.path is not None or not block.tag or block.tag in _TAGS[language]]
    if not usable:
        tags = ", ".join(sorted({repr(block.tag) for block in blocks}))
        raise _UnusableError(f"no fenced block is tagged {_TAGS[language][0]!r}; found {tags}")
    return usable


def _blocks(text: str) -> list[_Block]:
    """Split an answer into its fenced blocks.

    Raises:
        _UnusableError: a fence is never closed.
    """
    lines = text.split("\n")
    blocks: list[_Block] = []
    position = 0
    while position < len(lines):
        opening = _OPENING.match(lines[position].rstrip("\r"))
        if opening is None:
            position += 1
            continue
        end = _closing_line(lines, position + 1, len(opening["ticks"]))
        if end is None:
            raise _UnusableError(
                f"the fence opened on line {position + 1} of the answer is never closed: the answer was cut off, "
                f"or its last line is not {opening['ticks']}"
            )
        blocks.append(_block(position + 1, opening["info"], "\n".join(lines[position + 1 : end])))
        position = end + 1
    return blocks


def _closing_line(lines: list[str], start: int, ticks: int) -> int | None:
    for position in range(start, len(lines)):
        closing = _CLOSING.match(lines[position])
        if closing is not None and len(closing["ticks"]) >= ticks:
            return position
    return None


def _block(line: int, info: str, text: str) -> _Block:
    words = info.split()
    tag = words[0].lower() if words and "=" not in words[0] else ""
    named = _PATH_ATTRIBUTE.search(info) or _PATH_COMMENT.match(text.split("\n", 1)[0])
    return _Block(line=line, tag=tag, path=named["path"].strip("\"'") if named else None, text=text)


def _main_block(blocks: list[_Block], entry_point: str) -> _Block:
    """Return the block that is the main file.

    Raises:
        _UnusableError: none holds the entry point.
    """
    if not any(block.text.strip() for block in blocks):
        raise _UnusableError(f"the fenced block on line {blocks[0].line} of the answer is empty")
    name = re.compile(rf"\b{re.escape(entry_point)}\b" if entry_point else r"\S")
    sources = [block for block in blocks if not (block.path or "").endswith(_HEADERS)]
    holders = [block for block in sources if name.search(block.text)]
    if not holders:
        where = "the fenced block" if len(blocks) == 1 else f"any of the {len(blocks)} fenced blocks"
        raise _UnusableError(f"the entry point {entry_point!r} does not occur in {where}: return the complete program")
    return max(holders, key=lambda block: (len(block.text), block.line))


def _files(blocks: list[_Block], main: _Block, language: Language) -> tuple[SourceFile, ...]:
    """Return main file and named files.

    Raises:
        _UnusableError: a path or the amount of text is out of bounds.
    """
    others = [block for block in blocks if block is not main and block.path is not None]
    files = [SourceFile(path=main.path or MAIN_PATHS[language], text=main.text)]
    files += [SourceFile(path=block.path or "", text=block.text) for block in others]
    for block, file in zip([main, *others], files, strict=True):
        _check_file(file, block.line)
    _check_paths(files)
    size_bytes = sum(len(file.text.encode("utf-8", "surrogatepass")) for file in files)
    if size_bytes > MAX_SOURCE_BYTES:
        raise _UnusableError(f"the program is too long: {size_bytes} bytes, {MAX_SOURCE_BYTES} are allowed")
    return tuple(files)


def _check_file(file: SourceFile, line: int) -> None:
    if not file.text.strip():
        raise _UnusableError(f"the fenced block on line {line} of the answer ({file.path}) is empty")
    if file.path.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", file.path):
        raise _UnusableError(f"the path {file.path!r} is absolute: use a relative one")
    if ".." in file.path.split("/"):
        raise _UnusableError(f"the path {file.path!r} leaves the candidate's folder: use no '..'")
    if _PATH.fullmatch(file.path) is None or len(file.path) > MAX_PATH_CHARS:
        raise _UnusableError(
            f"the path {file.path!r} is unusable: up to {MAX_PATH_CHARS} letters, digits, '_', '-', '.' and '/'"
        )


def _check_paths(files: list[SourceFile]) -> None:
    if len(files) > MAX_FILES:
        raise _UnusableError(f"the answer holds {len(files)} files, {MAX_FILES} are allowed")
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise _UnusableError(f"two fenced blocks have the path {file.path!r}: give each file once, complete")
        seen.add(file.path)
