"""A compiler's errors for a model: what is wrong and where in its own code, never a dump of the library's templates."""

from __future__ import annotations

import re

import msgspec

MAX_ERRORS = 4
_MAX_DETAILS = 8
_MAX_LINE = 240
_MAX_REASON = 300
_ARGUMENTS = re.compile(r"\s*\[with [^\n]*\](?=[\u2019'\":]|$|\s)")
"""What templates were filled in with: lines of thousands of characters that say again what the code says."""


class CompilerError(msgspec.Struct, frozen=True, kw_only=True):
    """One error as a compiler printed it."""

    file: str
    headline: str
    """Its first line."""
    message: str
    """What is wrong, without the place."""
    details: tuple[str, ...] = ()
    """Source line, caret, and notes about the candidate's own files."""
    came_from: str = ""
    """Place in the candidate's own code that led there, where the error itself is in a library's header."""


def first_errors(errors: list[CompilerError], own_files: tuple[str, ...]) -> tuple[str, str]:
    """Return the first error in one line, and the first few with their source lines.

    Errors in the candidate's own files come first, then those that its code led to, then the rest. What is said twice
    of the same place is said once.

    Args:
        errors: at least one, in the compiler's order.
        own_files: the candidate's, as the compiler was given them.
    """
    different: dict[tuple[str, str], CompilerError] = {}
    for error in errors:
        different.setdefault((error.message, error.came_from or error.headline), error)
    ranked = sorted(different.values(), key=lambda error: _rank(error, own_files))
    shown = "\n".join(_text(error) for error in ranked[:MAX_ERRORS])
    more = len(ranked) - MAX_ERRORS
    log = f"{shown}\n({more} more errors)" if more > 0 else shown
    first = ranked[0]
    reason = f"{first.came_from}: error: {first.message}" if _rank(first, own_files) == 1 else first.headline
    return shortened(reason)[:_MAX_REASON], log


def shortened(line: str) -> str:
    """Return a line without template arguments, cut at a bearable length."""
    line = _ARGUMENTS.sub("", line)
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _rank(error: CompilerError, own_files: tuple[str, ...]) -> int:
    if error.file in own_files:
        return 0
    return 1 if error.came_from else 2


def _text(error: CompilerError) -> str:
    lines = [shortened(error.headline)]
    if error.came_from:
        lines.append(f"  your code leads there at {error.came_from}")
    details = [shortened(line) for line in error.details if line.strip()]
    if len(details) > _MAX_DETAILS:
        details = [*details[:_MAX_DETAILS], f"  ({len(details) - _MAX_DETAILS} more lines)"]
    return "\n".join((*lines, *details))
