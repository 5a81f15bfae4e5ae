"""How an attempt failed, as a model is told: the facts of each fate, bounded by whole lines, never expected values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from messages.tasks import Candidate
from messages.verdicts import Crashed, DidNotBuild, TimedOut, Verdict, Wrong, outcome_line, printed_by, workload_lines

LOG_CHARS = 4_000
"""Of a log at most this much is shown: enough for the first errors with their source lines."""
_LINE_CHARS = 300
_PRINTED_CHARS = 600
"""Of what a candidate printed that did not crash."""
_TAIL_SHARE = 3
"""One part in so many of a crash's log is its end, where the last words stand."""
_PLACES_SHOWN = 6
_PLACE = re.compile(r"(?P<path>[\w./+-]+\.\w+)(?::|\()(?P<line>\d+)\b")


def evidence_of(verdict: Verdict, candidate: Candidate | None = None) -> str:
    """Say what is known about a verdict other than a good one.

    Args:
        verdict: what the evaluator said.
        candidate: whose; the lines of it that compilers and interpreters name are quoted.
    """
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
    """Return `text` if it has at most `limit` characters, else its first whole lines and a count of the rest.

    A first line longer than `limit` is cut, and says so.
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
    """Return `text` if it has at most `limit` characters, else whole lines from its beginning and from its end."""
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
    """Return the lines of a candidate that a text names by file and number, in the order of their first mention."""
    return "\n".join(_quotes(text, candidate))


def _quotes(text: str, candidate: Candidate) -> Iterator[str]:
    sources = {file.path: file.text.split("\n") for file in candidate.files}
    seen: list[tuple[str, int]] = []
    for match in _PLACE.finditer(text):
        place = (match["path"].removeprefix("./"), int(match["line"]))
        if place in seen or not 0 < place[1] <= len(sources.get(place[0], ())):
            continue
        seen.append(place)
        yield f"    {place[0]}:{place[1]}: {_cut(sources[place[0]][place[1] - 1].strip())}"
        if len(seen) == _PLACES_SHOWN:
            return


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
