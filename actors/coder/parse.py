"""Parses an answer of whole files into a candidate, and renders a candidate as an answer in that form.

The rules, which `prompts.py` also tells the model:

- A file is one fenced block: three or more backticks with a language tag and, if there are several files, `path=NAME`.
  It ends with a line of at least as many backticks. The file is the exact text between them, except that HTML escapes
  are undone and noted.
- A block without `path=` may name its file in a comment on its first line (`// file: NAME`); the line is kept.
- The main file is the last block, other than a header, that defines the entry point: earlier ones are drafts. Blocks
  shorter than a quarter of the longest are fragments. If no block defines the entry point, a block that contains its
  name may be the main file; if a task has no entry point, any non-empty block may be.
- All named blocks are part of the candidate; if several have the same path, the last counts. Other unnamed blocks are
  ignored.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

import msgspec
from msgspec import structs

from evaluators.languages import SPECS
from messages.base import Language
from messages.tasks import Candidate, SourceFile

OPENING = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<info>[^`]*)$")
_CLOSING = re.compile(r"^ {0,3}(?P<ticks>`{3,})\s*$")
_PATH_ATTRIBUTE = re.compile(r"(?:^|\s)path=(?P<path>\S+)")
_PATH_COMMENT = re.compile(r"^\s*(?://|#|/\*)\s*(?:file|path)\s*[:=]\s*(?P<path>\S+)")


class UnusableError(Exception):
    """An answer contains no candidate; the text says why."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block of an answer."""

    line: int
    """Line of the opening fence, from 1."""
    tag: str
    """First word of the info string in lower case, or an empty string."""
    path: str | None
    text: str
    is_closed: bool = True
    """False if the answer, though said to be complete, ended inside the block."""


def read_blocks(text: str, *, is_complete: bool = False) -> list[Block]:
    """Split an answer into its fenced blocks.

    With `is_complete`, an unclosed last fence counts as forgotten rather than cut off.

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
    """Return the path in a fence's info string."""
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


MAX_SOURCE_BYTES = 128 * 1024
"""Largest program. Prompts often contain two: some 80,000 tokens, about the most that models accept."""
MAX_FILES = 16
MAX_PATH_CHARS = 120

_HEADERS = (".h", ".hpp", ".hh", ".cuh", ".inc")
_DECLINED = re.compile(r"\s*nothing further\b[:.,]?(?P<why>.*)", re.IGNORECASE | re.DOTALL)
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE)
_NO_DIFF = "return complete files, or search/replace blocks"
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#39);")
_ELISION = re.compile(
    r"^\s*(?://|#|/\*)[^\w\n]*(?:\.{3}|…).*\b(?:unchanged|existing|rest of|same as|as before)\b|"
    r"^\s*(?://|#|/\*)\s*\(?(?:the )?(?:rest|remainder|remaining) .*\b(?:unchanged|as before|omitted)\b",
    re.IGNORECASE,
)
"""Matches comments that replace code: `// ... existing code ...`, `# rest of the kernel unchanged`."""
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_PROSE_SHOWN = 400
_FRAGMENT = 0.25
"""Blocks shorter than this share of the longest are taken for a part of a program or a call of it."""


class Parsed(NamedTuple):
    """A parsed answer."""

    candidate: Candidate | None
    complaint: str
    """The mistake and how to correct it; empty if there is a candidate."""
    notes: tuple[str, ...] = ()
    """Harmless mistakes that were corrected."""


def parse_answer(
    text: str, *, language: Language, entry_point: str, is_complete: bool = False
) -> tuple[Candidate | None, str]:
    """Find the candidate in an answer of whole files; see `parse_files`."""
    return parse_files(text, language=language, entry_point=entry_point, is_complete=is_complete)[:2]


def parse_files(text: str, *, language: Language, entry_point: str, is_complete: bool = False) -> Parsed:
    """Find the candidate in an answer of whole files.

    If `entry_point` is empty, any program is accepted. `is_complete`: the model ended the answer itself.
    """
    try:
        found = _code_blocks(text, language, is_complete=is_complete)
        blocks, notes = _unescaped(kept := _without_drafts(found))
        main = _main_block(blocks, entry_point)
        files = _files(blocks, main, language)
        check_whole(files)
    except UnusableError as error:
        return Parsed(None, str(error))
    notes += tuple(
        f"the block on line {block.line} of the answer was taken for a draft: a later one has the path {block.path!r}"
        for block in found
        if block not in kept
    )
    notes += _remarks(blocks, main, entry_point)
    return Parsed(Candidate(language=language, entry_point=entry_point, files=files), "", notes)


def check_files(files: tuple[SourceFile, ...]) -> None:
    """Check the files' paths and total size. Raises `UnusableError`."""
    for file in files:
        _check_path(file.path)
    _check_paths(files)
    size_bytes = sum(len(file.text.encode("utf-8", "surrogatepass")) for file in files)
    if size_bytes > MAX_SOURCE_BYTES:
        raise UnusableError(f"the program is too long: {size_bytes} bytes, {MAX_SOURCE_BYTES} are allowed")


def check_whole(files: tuple[SourceFile, ...]) -> None:
    """Reject comments that stand in for omitted code. Raises `UnusableError`."""
    for file in files:
        for number, line in enumerate(file.text.split("\n"), start=1):
            if _ELISION.match(line):
                raise UnusableError(
                    f"line {number} of {file.path} stands for code that was left out ({line.strip()[:120]!r}): "
                    "return the complete file, or search/replace blocks"
                )


def declines(text: str) -> str:
    """Return the reason if an answer says that nothing further is worth trying, else an empty string.

    An answer that contains a block does not decline.
    """
    said = _DECLINED.match(text)
    if said is None or read_blocks(text, is_complete=True):
        return ""
    return " ".join(said["why"].split()) or "it gives no reason"


def render_files(files: tuple[SourceFile, ...], language: Language) -> str:
    """Write files as fenced blocks; each fence is longer than any run of backticks inside.

    `parse_answer` returns the same files for any text, provided the main file comes first and is the largest with the
    entry point, and all paths are usable.
    """
    return "\n\n".join(_fenced(file, SPECS[language].fences[0]) for file in files)


def _fenced(file: SourceFile, tag: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", file.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag} path={file.path}\n{file.text}\n{fence}"


def _code_blocks(text: str, language: Language, *, is_complete: bool) -> list[Block]:
    blocks = read_blocks(text, is_complete=is_complete)
    if not blocks:
        said = " ".join(text.split())
        if not said:
            raise UnusableError("the answer is empty")
        if _HUNK.search(text):
            raise UnusableError(f"the answer is a diff: {_NO_DIFF}")
        raise UnusableError(f"no code block (between two lines of three backticks) in: {said[:_PROSE_SHOWN]}")
    usable = [
        block for block in blocks if block.path is not None or not block.tag or block.tag in SPECS[language].fences
    ]
    hunks = [block for block in usable or blocks if _HUNK.search(block.text)]
    if hunks and len(hunks) == len(usable or blocks):
        raise UnusableError(f"the fenced block on line {hunks[0].line} of the answer is a diff: {_NO_DIFF}")
    if not usable:
        tags = ", ".join(sorted({repr(block.tag) for block in blocks}))
        raise UnusableError(f"no fenced block is tagged {SPECS[language].fences[0]!r}; found {tags}")
    return usable


def _without_drafts(blocks: list[Block]) -> list[Block]:
    last = {block.path: block for block in blocks if block.path is not None}
    return [block for block in blocks if block.path is None or last[block.path] is block]


def _unescaped(blocks: list[Block]) -> tuple[list[Block], tuple[str, ...]]:
    """Undo HTML escapes in blocks that were certainly escaped: several escapes, and no `<` or `>`."""
    found: list[Block] = []
    notes: list[str] = []
    for block in blocks:
        if len(_ENTITY.findall(block.text)) > 1 and not re.search("[<>]", block.text):
            notes.append(f"the fenced block on line {block.line} of the answer was escaped for HTML")
            found.append(structs.replace(block, text=html.unescape(block.text)))
        else:
            found.append(block)
    return found, tuple(notes)


def _remarks(blocks: list[Block], main: Block, entry_point: str) -> tuple[str, ...]:
    name = re.compile(rf"\b{re.escape(entry_point)}\b" if entry_point else r"\S")
    rivals = [block for block in blocks if block is not main and block.path is None and name.search(block.text)]
    notes = [f"the fence on line {block.line} of the answer was left open" for block in blocks if not block.is_closed]
    if rivals:
        others = ", ".join(str(block.line) for block in rivals)
        notes.append(f"the block on line {main.line} was taken for the program, not what begins on line {others}")
    return tuple(notes)


def _main_block(blocks: list[Block], entry_point: str) -> Block:
    if not any(block.text.strip() for block in blocks):
        raise UnusableError(f"the fenced block on line {blocks[0].line} of the answer is empty")
    name = re.compile(rf"\b{re.escape(entry_point)}\b" if entry_point else r"\S")
    sources = [block for block in blocks if not (block.path or "").endswith(_HEADERS)]
    holders = [block for block in sources if name.search(block.text)]
    if not holders:
        where = "the fenced block" if len(blocks) == 1 else f"any of the {len(blocks)} fenced blocks"
        raise UnusableError(f"the entry point {entry_point!r} does not occur in {where}: return the complete program")
    defining = [
        block for block in holders if entry_point and _definition(re.escape(entry_point)).search(block.text)
    ] or holders
    longest = max(len(block.text) for block in defining)
    return [block for block in defining if len(block.text) >= longest * _FRAGMENT][-1]


def _definition(name: str) -> re.Pattern[str]:
    arguments = r"\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)"
    return re.compile(rf"\b(?:def|class)\s+{name}\b|\b{name}\s*=[^=]|\b{name}\s*{arguments}[^;{{}}()=!<>&|]*\{{")


def _files(blocks: list[Block], main: Block, language: Language) -> tuple[SourceFile, ...]:
    others = [block for block in blocks if block is not main and block.path is not None]
    files = [SourceFile(path=main.path or SPECS[language].main_path, text=main.text)]
    files += [SourceFile(path=block.path or "", text=block.text) for block in others]
    for block, file in zip([main, *others], files, strict=True):
        if not file.text.strip():
            raise UnusableError(f"the fenced block on line {block.line} of the answer ({file.path}) is empty")
    check_files(tuple(files))
    return tuple(files)


def _check_path(path: str) -> None:
    if path.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", path):
        raise UnusableError(f"the path {path!r} is absolute: use a relative one")
    if ".." in path.split("/"):
        raise UnusableError(f"the path {path!r} leaves the candidate's folder: use no '..'")
    if _PATH.fullmatch(path) is None or len(path) > MAX_PATH_CHARS:
        raise UnusableError(
            f"the path {path!r} is unusable: up to {MAX_PATH_CHARS} letters, digits, '_', '-', '.' and '/'"
        )


def _check_paths(files: tuple[SourceFile, ...]) -> None:
    if len(files) > MAX_FILES:
        raise UnusableError(f"the answer holds {len(files)} files, {MAX_FILES} are allowed")
    paths = [file.path for file in files]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UnusableError(f"two fenced blocks have the path {path!r}: give each file once, complete")
