"""What g++, clang++ and the linker printed, made short enough for a model and free of what does not help it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evaluators.runners.base import NO_ENTRY_POINT
from messages.verdicts import Crashed, DidNotBuild

MAX_CHARACTERS = 4000
MAX_ERRORS = 4
_MAX_BLOCK_LINES = 14
_MAX_REASON = 300

_HEADER = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<kind>fatal error|error|warning|note): "
)
_LINKER = re.compile(r"undefined reference to [`'](?P<symbol>[^']+)'|(?P<twice>multiple definition of [`'][^']+')")
_MEMORY = re.compile(r"virtual memory exhausted|out of memory|Cannot allocate memory|std::bad_alloc")


def explain(log: str, own_files: tuple[str, ...]) -> DidNotBuild:
    """Return the first error in one line, and the first errors with their source lines.

    Errors that point into the candidate's own files come first: those inside a system header are their consequence.
    """
    errors = [block for block in _blocks(log) if _kind(block) in {"error", "fatal error"}]
    errors.sort(key=lambda block: _file(block) not in own_files)
    if errors:
        shown = "\n".join("\n".join(block[:_MAX_BLOCK_LINES]) for block in errors[:MAX_ERRORS])
        more = f"\n({len(errors) - MAX_ERRORS} more errors)" if len(errors) > MAX_ERRORS else ""
        return DidNotBuild(reason=errors[0][0][:_MAX_REASON], log=bound(shown) + more)
    if match := _LINKER.search(log):
        what = match["twice"] or f"undefined reference to {match['symbol']}"
        return DidNotBuild(reason=f"linker: {what}"[:_MAX_REASON], log=bound(log))
    if _MEMORY.search(log):
        return DidNotBuild(reason="the compiler needed more memory than it may use", log=bound(log))
    first = next((line.strip() for line in log.splitlines() if line.strip()), "the compiler failed without a word")
    return DidNotBuild(reason=first[:_MAX_REASON], log=bound(log))


def explain_load(status: int, log: str) -> DidNotBuild | Crashed:
    """Return why a library that was built cannot be loaded: the last line of what was printed."""
    last = log.splitlines()[-1:] or ["no message"]
    if status == NO_ENTRY_POINT:
        return DidNotBuild(reason=last[0])
    return Crashed(reason=f"the library cannot be loaded: {last[0]}", log=log)


def bound(text: str) -> str:
    """Return the beginning of a text, cut at a line's end."""
    if len(text) <= MAX_CHARACTERS:
        return text.strip()
    return text[:MAX_CHARACTERS].rpartition("\n")[0].strip() + "\n(cut)"


def _blocks(log: str) -> Iterator[list[str]]:
    """Yield each diagnostic with its notes, source lines and carets."""
    block: list[str] = []
    for line in log.splitlines():
        match = _HEADER.match(line)
        if match is not None and match["kind"] != "note":
            if block:
                yield block
            block = [line]
        elif line.startswith(("In file included from", "compilation terminated", "cc1plus:")):
            continue
        elif block:
            block.append(line)
    if block:
        yield block


def _kind(block: list[str]) -> str:
    match = _HEADER.match(block[0])
    return "" if match is None else match["kind"]


def _file(block: list[str]) -> str:
    match = _HEADER.match(block[0])
    return "" if match is None else match["file"].removeprefix("./")
