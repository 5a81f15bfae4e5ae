"""Describes a failed attempt for a model: facts for each status, cut at whole lines, never expected values."""

from __future__ import annotations

import re
from collections.abc import Callable

from messages.tasks import Candidate
from messages.verdicts import Crashed, DidNotBuild, TimedOut, Verdict, Wrong, outcome_line, printed_by, workload_lines

LOG_CHARS = 4_000
"""Maximum length of a quoted log: enough for the first errors with their source lines."""
_LINE_CHARS = 300
_PRINTED_CHARS = 600
"""Maximum length of the quoted output of a candidate that did not crash."""
_TAIL_SHARE = 3
"""Divisor for the tail of a crash's log: one part in this number of the space is for the log's end."""
_PLACES_SHOWN = 6
_PLACE = re.compile(r"(?P<path>[\w./+-]+\.\w+)(?::|\()(?P<line>\d+)\b")


def evidence_of(verdict: Verdict, candidate: Candidate | None = None) -> str:
    """Describe a bad verdict and quote the lines of `candidate` that compilers and interpreters name."""
    match verdict:
        case DidNotBuild():
            return _with_log(f"It did not build: {verdict.reason}", verdict.log, candidate, bounded_lines)
        case Crashed():
            during = f" during {verdict.stage}" if verdict.stage else ""
            said = f"It crashed{during}{_on(verdict.workload)}: {verdict.reason}"
            return _with_log(said, verdict.log, candidate, bounded_ends)
        case TimedOut():
            return (
                f"It was killed after {verdict.limit_s:g} s during {verdict.stage}{_on(verdict.workload)}: "
                f"{verdict.reason}"
            )
        case Wrong():
            return _with_printed(_wrong(verdict), verdict)
        case _:
            told = "\n".join((outcome_line(verdict), *(f"- {line}" for line in workload_lines(verdict))))
            return _with_printed(told, verdict)


def _with_printed(said: str, verdict: Verdict) -> str:
    printed = printed_by(verdict).strip()
    if not printed:
        return said
    shown = bounded_ends("\n".join(map(_cut, printed.splitlines())), _PRINTED_CHARS).splitlines()
    return "\n".join((said, "", "What it printed:", "", *(f"    {line}" for line in shown)))


def bounded_lines(text: str, limit: int) -> str:
    """Return the first whole lines of a text, at most `limit` characters, and a count of the rest.

    A first line longer than `limit` is cut, and the text says so.
    """
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > limit:
            break
        kept.append(line)
    if not kept:
        return f"{lines[0][:limit]} … ({len(text) - limit} more characters)"
    return "\n".join(kept) + f"\n({len(lines) - len(kept)} more lines)"


def bounded_ends(text: str, limit: int) -> str:
    """Return whole lines from the beginning and the end of a text, in about `limit` characters."""
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    tail: list[str] = []
    room = limit // _TAIL_SHARE
    while len(lines) > 1 and len(lines[-1]) < room:
        room -= len(lines[-1]) + 1
        tail.insert(0, lines.pop())
    return "\n".join((bounded_lines("\n".join(lines), limit - limit // _TAIL_SHARE), *tail))


def quoted_places(text: str, candidate: Candidate) -> str:
    """Return the candidate's lines that a text names by file and number, in order of first mention."""
    sources = {file.path: file.text.split("\n") for file in candidate.files}
    quotes: dict[tuple[str, int], str] = {}
    for match in _PLACE.finditer(text):
        path, line = match["path"].removeprefix("./"), int(match["line"])
        if 0 < line <= len(sources.get(path, ())) and len(quotes) < _PLACES_SHOWN:
            quotes[path, line] = f"    {path}:{line}: {_cut(sources[path][line - 1].strip())}"
    return "\n".join(quotes.values())


def _with_log(said: str, log: str, candidate: Candidate | None, bounded: Callable[[str, int], str]) -> str:
    parts = [said]
    if log.strip():
        shown = bounded("\n".join(_cut(line) for line in log.strip("\n").split("\n")), LOG_CHARS)
        parts.append("\n".join(f"    {line}" for line in shown.split("\n")))
    if candidate is not None and (places := quoted_places(f"{said}\n{log}", candidate)):
        parts.append(f"The lines of yours that are named there:\n\n{places}")
    return "\n\n".join(parts)


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} … ({len(line) - _LINE_CHARS} more characters)"


def _on(workload: str) -> str:
    return f" on the workload {workload!r}" if workload else ""


def _wrong(verdict: Wrong) -> str:
    lines = [f"Its output is wrong{_on(verdict.workload)}: {verdict.reason}"]
    if verdict.elements:
        share = verdict.wrong_elements / verdict.elements
        lines.append(f"- {verdict.wrong_elements} of {verdict.elements} elements are wrong ({share:.1%})")
    if verdict.first_wrong:
        lines.append(f"- the first wrong element is at {list(verdict.first_wrong)}")
    if verdict.max_abs_error:
        lines.append(f"- the largest absolute error is {verdict.max_abs_error:.3g}")
    if verdict.family:
        lines.append(f"- with inputs of the family {verdict.family!r}")
    if verdict.patterns:
        lines.append(f"- the wrong places: {', '.join(verdict.patterns)}")
    return "\n".join(lines)
