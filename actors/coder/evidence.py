"""How an attempt failed, as a model is told: the facts of each fate, bounded by whole lines."""

from __future__ import annotations

from messages.verdicts import Crashed, DidNotBuild, TimedOut, Verdict, Wrong, outcome_line

LOG_CHARS = 4_000
"""Of a log at most this much is shown: enough for the first errors with their source lines."""


def evidence_of(verdict: Verdict) -> str:
    """Say what is known about a verdict other than a timed one."""
    match verdict:
        case DidNotBuild():
            return _with_log(f"It did not build: {verdict.reason}", verdict.log)
        case Crashed():
            during = f" during {verdict.stage}" if verdict.stage else ""
            return _with_log(f"It crashed{during}: {verdict.reason}", verdict.log)
        case TimedOut():
            return f"It was killed after {verdict.limit_s:g} s during {verdict.stage}: {verdict.reason}"
        case Wrong():
            return _wrong(verdict)
        case _:
            return outcome_line(verdict)


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


def _with_log(said: str, log: str) -> str:
    if not log.strip():
        return said
    quoted = "\n".join(f"    {line}" for line in bounded_lines(log.strip("\n"), LOG_CHARS).split("\n"))
    return f"{said}\n\n{quoted}"


def _wrong(verdict: Wrong) -> str:
    lines = [f"Its output is wrong: {verdict.reason}"]
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
