"""Output of g++, clang++ and the linker, shortened for a model."""

from __future__ import annotations

import re

import msgspec

from evaluators.languages.compiled import CompilerError, first_errors
from messages.verdicts import DidNotBuild

MAX_CHARACTERS = 4000
_MAX_REASON = 300

_HEADER = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<kind>fatal error|error|warning|note): "
)
_CONTEXT = re.compile(
    r"^(?P<file>[^:\n]+):(?:(?P<line>\d+):(?:\d+:)? {2,}(?:recursively )?required (?:from|by)\b| (?:In|At) )"
)
"""Lines before an error that belong to it: its place, and the way there."""
_NOISE = ("In file included from", "                 from", "compilation terminated", "cc1plus:")
_LINKER = re.compile(r"undefined reference to [`'](?P<symbol>[^']+)'|(?P<twice>multiple definition of [`'][^']+')")
_MEMORY = re.compile(r"virtual memory exhausted|out of memory|Cannot allocate memory|std::bad_alloc")


def explain(log: str, own_files: tuple[str, ...]) -> DidNotBuild:
    """Return the first error in one line, and the first errors with their source lines.

    Errors that point into the candidate's own files come first: those inside a system header are their consequence, and
    are shown with the place in those files that led there.
    """
    if errors := _Reader(own_files).read(log):
        reason, shown = first_errors(errors, own_files)
        return DidNotBuild(reason=reason, log=bound(shown))
    if match := _LINKER.search(log):
        what = match["twice"] or f"undefined reference to {match['symbol']}"
        return DidNotBuild(reason=f"linker: {what}"[:_MAX_REASON], log=bound(log))
    if _MEMORY.search(log):
        return DidNotBuild(reason="the compiler needed more memory than it may use", log=bound(log))
    first = next((line.strip() for line in log.splitlines() if line.strip()), "the compiler failed without a word")
    return DidNotBuild(reason=first[:_MAX_REASON], log=bound(log))


def bound(text: str) -> str:
    """Return the beginning of a text, cut at a line's end."""
    if len(text) <= MAX_CHARACTERS:
        return text.strip()
    return text[:MAX_CHARACTERS].rpartition("\n")[0].strip() + "\n(cut)"


class _Reader:
    """Goes through a compiler's output once. The cause of an error stands before it (g++) or in its notes (clang)."""

    def __init__(self, own_files: tuple[str, ...]) -> None:
        self._own_files = own_files
        self._errors: list[CompilerError] = []
        self._details: list[str] | None = None
        """Of the latest error; None after a warning."""
        self._keeps = False
        """True if plain lines belong to the details."""
        self._came_from = ""

    def read(self, log: str) -> list[CompilerError]:
        for line in log.splitlines():
            header = _HEADER.match(line)
            if header is None:
                self._plain_line(line)
            elif header["kind"] == "note":
                self._note(line, header)
            else:
                self._finish()
                self._begin(line, header)
        self._finish()
        return self._errors

    def _plain_line(self, line: str) -> None:
        context = _CONTEXT.match(line)
        if context is not None:
            self._keeps = False
            if context["line"] and self._is_own(context["file"]):
                self._came_from = f"{_relative(context['file'])}:{context['line']}"
        elif self._keeps and self._details is not None and not line.startswith(_NOISE):
            self._details.append(line)

    def _begin(self, line: str, header: re.Match[str]) -> None:
        self._keeps = "error" in header["kind"]
        self._details = [] if self._keeps else None
        if self._keeps:
            led = "" if self._is_own(header["file"]) else self._came_from
            file, message = _relative(header["file"]), line[header.end() :]
            self._errors.append(CompilerError(file=file, headline=line, message=message, came_from=led))
        self._came_from = ""

    def _note(self, line: str, header: re.Match[str]) -> None:
        self._keeps = self._details is not None and self._is_own(header["file"])
        if not self._keeps or self._details is None:
            return
        self._details.append(line)
        if line.endswith("requested here") and not self._is_own(self._errors[-1].file):
            place = f"{_relative(header['file'])}:{header['line']}"
            self._errors[-1] = msgspec.structs.replace(self._errors[-1], came_from=place)

    def _finish(self) -> None:
        if self._details is not None:
            self._errors[-1] = msgspec.structs.replace(self._errors[-1], details=tuple(self._details))
        self._details = None

    def _is_own(self, file: str) -> bool:
        return _relative(file) in self._own_files


def _relative(file: str) -> str:
    return file.removeprefix("./")
