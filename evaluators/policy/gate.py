"""What can be said of a candidate before it runs: what its library calls, and what its text looks like."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evaluators.policy.elf import BadLibraryError, read_imports
from evaluators.policy.inlined import foreign_call_inside
from evaluators.policy.launchers import foreign_launcher
from evaluators.policy.python_text import reach_past_torch
from evaluators.policy.symbols import finder_in, foreign_call
from evaluators.policy.triage import triage
from messages.errors import EvaluatorError
from messages.tasks import Candidate, TaskRules
from messages.verdicts import LIBRARY_CALL_RULE, Rejected

_NATIVE = frozenset(("cpp", "cuda"))


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    rejected: Rejected | None = None
    flags: tuple[str, ...] = ()
    """What a person may want to look at; decides nothing."""


def examine(candidate: Candidate, product: Path, rules: TaskRules) -> Examined:
    """Look at a candidate's text and, where there is one, at its shared library. Blocks for some milliseconds.

    Raises:
        EvaluatorError: what was built cannot be read.
    """
    found = triage(candidate)
    if found.forbidden:
        return Examined(rejected=Rejected(rule="forbidden construct", reason=found.forbidden[0]), flags=found.flags)
    rejected = None if rules.library_calls == "allow" else _library_call(candidate, product, rules)
    return Examined(rejected=rejected, flags=found.flags)


def _library_call(candidate: Candidate, product: Path, rules: TaskRules) -> Rejected | None:
    if candidate.language in _NATIVE:
        what = _linked(candidate, product, rules)
    else:
        folder = product.parent
        what = _reached(candidate) or foreign_call_inside(folder, rules) or foreign_launcher(folder)
    return Rejected(rule=LIBRARY_CALL_RULE, reason=f"{what}: this task denies library calls") if what else None


def _linked(candidate: Candidate, product: Path, rules: TaskRules) -> str:
    try:
        imports = read_imports(product.read_bytes())
    except (OSError, BadLibraryError) as error:
        raise EvaluatorError(f"what was built cannot be read: {error}") from error
    return foreign_call(imports, rules, candidate.language) or finder_in(candidate)


def _reached(candidate: Candidate) -> str:
    for file in candidate.files:
        found = reach_past_torch(file.text) if file.path.endswith(".py") else None
        if found is not None:
            return f"{found.what} ({file.path}:{found.line}) is for calling libraries past torch"
    return ""
