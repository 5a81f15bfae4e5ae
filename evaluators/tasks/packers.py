"""Candidates in the form that a task's source has for them: which of its modules `packing` reads them.

A source without a line here has no form of its own for a Python file: it is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSource, TaskSpec

_MODULES: Mapping[TaskSource, str] = {
    "gpumode": "evaluators.tasks.gpumode.packing",
    "tritonbench": "evaluators.tasks.tritonbench.packing",
}
_DEFAULT_ENTRY_POINT = "ksearch_run"


class Packer(Protocol):
    """A source's module `packing`, as far as it reads single files."""

    def candidate_of_text(self, text: str, task: TaskSpec) -> Candidate:
        """Return a candidate of a file in the source's own form.

        Raises:
            ConfigError: it is in none.
        """


def json_candidate(shown: str, text: str, task: TaskSpec | None) -> Candidate:
    """Return the candidate of a JSON file: a solution of FlashInfer-Bench.

    Args:
        shown: what messages call the file.
        text: of the file.
        task: what it is for.

    Raises:
        ConfigError: it is none, or none of this task.
    """
    if task is None or task.source != "flashinfer":
        raise ConfigError(
            f"{shown!r}: a candidate in JSON is a solution of FlashInfer-Bench, and this is no task of it; "
            "a candidate is a source file (.cpp, .cu, .py), or a run's best folder"
        )
    from evaluators.tasks.flashinfer.packing import candidate_of_json  # noqa: PLC0415 - of one source

    return candidate_of_json(text, shown, task)


def python_candidate(name: str, text: str, task: TaskSpec) -> Candidate:
    """Return the candidate of a Python file for a task whose candidates are functions.

    Args:
        name: of the file.
        text: of the file.
        task: what it is for.

    Raises:
        ConfigError: it is in no form that the task's source knows.
    """
    if task.source in _MODULES:
        return cast("Packer", import_module(_MODULES[task.source])).candidate_of_text(text, task)
    entry_point = task.entry_point or _DEFAULT_ENTRY_POINT
    return Candidate(language="python", entry_point=entry_point, files=(SourceFile(path=name, text=text),))
