"""What Python and Triton raised, made short enough for a model. Texts are those of `evaluators/runners/program.py`."""

from __future__ import annotations

import re

from messages.verdicts import Crashed, DidNotBuild

MAX_CHARACTERS = 4000
_MAX_REASON = 300

_PLACE = re.compile(r"^(?P<place>[^\s:]+\.py:\d+) in ", re.MULTILINE)


def headline(told: str) -> str:
    """Return the last line, which says what was raised, with the innermost place in the candidate's files."""
    lines = told.strip().splitlines()
    if not lines:
        return "failed without a word"
    places = _PLACE.findall(told)
    where = f" ({places[-1]})" if places else ""
    return lines[-1].strip()[: _MAX_REASON - len(where)] + where


def explain_build(told: str) -> DidNotBuild:
    """Return why the file cannot be used."""
    return DidNotBuild(reason=headline(told), log=bound(told))


def explain_call(told: str) -> Crashed:
    """Return why a call failed."""
    return Crashed(reason=headline(told), log=bound(told))


def bound(text: str) -> str:
    """Return the end of a text, where the error stands, cut at a line's beginning."""
    text = text.strip()
    if len(text) <= MAX_CHARACTERS:
        return text
    return "(cut)\n" + text[-MAX_CHARACTERS:].partition("\n")[2]
