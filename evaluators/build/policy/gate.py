"""Findings about a candidate before it runs: library calls, and flags on its text.

A text can hide what it does, so nothing depends on flags: processes and checks prevent the effects of flagged
constructs. Flags decide nothing; they show a person where to look first. Forbidden are only constructs without any
honest use in a kernel.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from evaluators.build.policy import native_text, python_text
from evaluators.build.policy.findings import Finding
from evaluators.build.policy.python_text import reach_past_torch
from evaluators.build.policy.symbols import (
    BadLibraryError,
    finder_in,
    foreign_call,
    foreign_call_inside,
    foreign_launcher,
    read_imports,
)
from evaluators.languages import SPECS
from messages.base import EvaluatorError
from messages.tasks import Candidate, TaskRules
from messages.verdicts import LIBRARY_CALL_RULE, Rejected

MAX_BYTES = 512 << 10
"""Longer texts are flagged, not examined."""
_MAX_FLAGS = 20


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """Findings in a candidate's text."""

    flags: tuple[str, ...] = ()
    """`exec (main.py:12)`; each construct once per file, bounded."""
    forbidden: tuple[str, ...] = ()
    """Constructs that no honest kernel contains, in the same form."""


def triage(candidate: Candidate) -> Triage:
    """Examine all files of a candidate."""
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


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an examination."""

    rejected: Rejected | None = None
    flags: tuple[str, ...] = ()
    """Constructs for a person to look at; they decide nothing."""


def examine(candidate: Candidate, product: Path, rules: TaskRules) -> Examined:
    """Examine a candidate's text and its shared library, if it has one. Blocks for some milliseconds.

    Raises:
        EvaluatorError: the build product cannot be read.
    """
    found = triage(candidate)
    if found.forbidden:
        return Examined(rejected=Rejected(rule="forbidden construct", reason=found.forbidden[0]), flags=found.flags)
    rejected = None if rules.library_calls == "allow" else _library_call(candidate, product, rules)
    return Examined(rejected=rejected, flags=found.flags)


def _library_call(candidate: Candidate, product: Path, rules: TaskRules) -> Rejected | None:
    if SPECS[candidate.language].is_native:
        what = _linked(candidate, product, rules)
    else:
        folder = product.parent
        what = _reached(candidate) or foreign_call_inside(folder, rules) or foreign_launcher(folder)
    return Rejected(rule=LIBRARY_CALL_RULE, reason=f"{what}: this task denies library calls") if what else None


def _linked(candidate: Candidate, product: Path, rules: TaskRules) -> str:
    try:
        imports = read_imports(product.read_bytes())
    except (OSError, BadLibraryError) as error:
        raise EvaluatorError(f"the build product cannot be read: {error}") from error
    return foreign_call(imports, rules, candidate.language) or finder_in(candidate)


def _reached(candidate: Candidate) -> str:
    for file in candidate.files:
        found = reach_past_torch(file.text) if file.path.endswith(".py") else None
        if found is not None:
            return f"{found.what} ({file.path}:{found.line}) is for calling libraries past torch"
    return ""
