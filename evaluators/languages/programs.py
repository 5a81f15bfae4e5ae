"""Shared by Python and Triton: their support, the start of their builds, and the texts of errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

import evaluators
from evaluators.languages.base import IDENTIFIER, BuildPlan
from messages.tasks import Candidate
from messages.verdicts import Crashed, DidNotBuild

ADDRESS_SPACE_BYTES = 128 << 30
"""Of a building process that imports torch: torch's libraries for GPUs take tens of GiB of it."""
MEMORY_BYTES = 16 << 30
"""Address space for compiling kernels, besides what importing took."""
_SYNTAX = Path(__file__).with_name("syntax.py")
_TIMEOUT_S = 30.0
_SUFFIX = ".py"
_ROOT = str(Path(evaluators.__file__).parents[1])
_MAX_CHARACTERS, _MAX_REASON = 4000, 300
_PLACE = re.compile(r"^(?P<place>[^\s:]+\.py:\d+) in ", re.MULTILINE)


class ProgramSupport:
    """The part of `LanguageSupport` that Python and Triton share: the product is the candidate's own main file."""

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot be given to Python, if so."""
        if IDENTIFIER.fullmatch(candidate.entry_point) is None:
            return DidNotBuild(reason=f"entry point {candidate.entry_point!r} is no Python identifier")
        if not candidate.files or not candidate.files[0].path.endswith(_SUFFIX):
            return DidNotBuild(reason=f"the main file must end in {_SUFFIX}")
        return None

    def explain_failure(self, log: str, candidate: Candidate) -> DidNotBuild:  # noqa: ARG002 - it names files itself
        """Return the first error with its source line."""
        return DidNotBuild(reason=headline(log), log=bound(log))

    def summarize_remarks(self, log: str) -> str:
        """Return what was printed, bounded."""
        return bound(log)

    def check_product(self, product: Path, candidate: Candidate) -> DidNotBuild | None:  # noqa: ARG002
        """Find nothing missing: the product is the candidate's own file."""
        return None

    def explain_load_failure(self, status: int, log: str) -> DidNotBuild:  # noqa: ARG002 - all mean the same here
        """Return what importing the program raised, or why its entry point cannot be called."""
        return DidNotBuild(reason=headline(log), log=bound(log))


def explain_call(log: str) -> Crashed:
    """Return why a call failed."""
    return Crashed(reason=headline(log), log=bound(log))


def plan_reading(candidate: Candidate, form: Literal["module", "kernels"]) -> BuildPlan:
    """Return the command that reads the sources without executing them; see `syntax.py`."""
    command = (sys.executable, "-I", "-S", str(_SYNTAX), form, candidate.entry_point, *programs_of(candidate))
    return BuildPlan(command=command, product=candidate.files[0].path, timeout_s=_TIMEOUT_S)


def command_of(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs `main` of one of our modules, isolated from the user's settings of Python."""
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from {module} import main; sys.exit(main())"
    return (sys.executable, "-I", "-B", "-c", code, *arguments)


def programs_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the paths of its Python files, the main one first."""
    return tuple(file.path for file in candidate.files if file.path.endswith(_SUFFIX))


def headline(told: str) -> str:
    """Return the last line, which says what was raised, with the innermost place in the candidate's files.

    Args:
        told: as `evaluators/runners/program.py` tells it.
    """
    lines = told.strip().splitlines()
    if not lines:
        return "failed without a word"
    places = _PLACE.findall(told)
    where = f" ({places[-1]})" if places else ""
    return lines[-1].strip()[: _MAX_REASON - len(where)] + where


def bound(text: str) -> str:
    """Return the end of a text, where the error stands, cut at a line's beginning."""
    text = text.strip()
    if len(text) <= _MAX_CHARACTERS:
        return text
    return "(cut)\n" + text[-_MAX_CHARACTERS:].partition("\n")[2]
