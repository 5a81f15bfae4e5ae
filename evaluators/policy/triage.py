"""What a candidate's text looks like: flags for people, and the few constructs that no honest kernel holds.

A text can hide whatever it does, so nothing rests on this: what a flag is about is kept from mattering by processes and
by checks. Flags decide nothing; they say where to look first. Forbidden is only what has no honest use in a kernel.
"""

from __future__ import annotations

import msgspec

from evaluators.policy import native_text, python_text
from evaluators.policy.findings import Finding
from messages.tasks import Candidate

MAX_BYTES = 512 << 10
"""Longer texts are not looked at, and flagged."""
_MAX_FLAGS = 20


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    flags: tuple[str, ...] = ()
    """`exec (main.py:12)`; each construct once per file, bounded."""
    forbidden: tuple[str, ...] = ()
    """Those that no honest kernel holds, in the same words."""


def triage(candidate: Candidate) -> Triage:
    """Look at all files of a candidate."""
    if sum(len(file.text) for file in candidate.files) > MAX_BYTES:
        return Triage(flags=("long: its text was not looked at",))
    flags: list[str] = []
    forbidden: list[str] = []
    for file in candidate.files:
        look = python_text.look if file.path.endswith(".py") else native_text.look
        for finding in _first_of_each(look(file.text)):
            said = f"{finding.what} ({file.path}:{finding.line})"
            flags.append(said)
            if finding.is_forbidden:
                forbidden.append(said)
    return Triage(flags=tuple(flags[:_MAX_FLAGS]), forbidden=tuple(forbidden[:_MAX_FLAGS]))


def _first_of_each(findings: list[Finding]) -> list[Finding]:
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.what, finding)
    return list(first.values())
