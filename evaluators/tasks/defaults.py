"""The functions of a task source that has no forms of its own; a source re-exports those that it does not write."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSpec
from messages.verdicts import Verdict

MAIN_PATH = "reference_as_candidate.py"
_PROBLEM = "ksearch_reference"
_ENTRY_POINT = "ksearch_run"
_SUFFIX = "\n\n\nclass ModelNew(Model):\n    pass\n"
_DESTINATION = """
    returned = _MODEL(*given[:{count}])
    returned = returned if isinstance(returned, (tuple, list)) else (returned,)
    for place, value in zip(given[{count}:], returned, strict=True):
        place.copy_(value)
"""
"""Outputs that form a sequence of tensors, the only form that a destination can have."""


class Competition(Protocol):
    """How a competition ranks submissions to a problem."""

    def score(self, verdict: Verdict) -> object:
        """Return the figure of a submission with this verdict, as a struct for JSON."""

    def lines(self, verdict: Verdict) -> Iterator[str]:
        """Yield the figure for people, or the reason why there is none."""


def find_competition(name: str) -> Competition | None:  # noqa: ARG001 - of a source without competitions
    """Return None: submissions to this source are not ranked."""
    return None


def candidate_of_text(text: str, task: TaskSpec, name: str) -> Candidate:
    """Return a Python file as a candidate, unchanged."""
    entry_point = task.entry_point or _ENTRY_POINT
    return Candidate(language="python", entry_point=entry_point, files=(SourceFile(path=name, text=text),))


def candidate_of_json(text: str, shown: str, task: TaskSpec | None) -> Candidate:  # noqa: ARG001 - no form of its own
    """Refuse a JSON file.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"{shown!r}: a candidate in JSON is a solution of FlashInfer-Bench, and this is no task of it; "
        "a candidate is a source file (.cpp, .cu, .py), or a run's best folder"
    )


def reference_candidate(task: TaskSpec) -> Candidate:
    """Return a task's reference as a candidate; it evaluates to about 1x.

    Raises:
        ConfigError: candidates are functions, and the arguments of the reference cannot be counted.
    """
    if task.calling == "module":
        main = SourceFile(path=MAIN_PATH, text=task.text.rstrip("\n") + _SUFFIX)
        return Candidate(language="python", entry_point="ModelNew", files=(main,))
    name = task.entry_point or _ENTRY_POINT
    if task.calling == "destination":
        body = _DESTINATION.format(count=_arguments_of(task))
    else:
        body = "\n    return _MODEL(*given)\n"
    imports = f"from {_PROBLEM} import Model, get_init_inputs"
    text = f"{imports}\n\n_MODEL = Model(*get_init_inputs())\n\n\ndef {name}(*given):{body}"
    problem = SourceFile(path=f"{_PROBLEM}.py", text=task.text)
    files = (SourceFile(path=MAIN_PATH, text=text), problem, *task.files)
    return Candidate(language="python", entry_point=name, files=files)


def _arguments_of(task: TaskSpec) -> int:
    """Return the number of the reference's arguments."""
    for node in ast.parse(task.text).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward" and method.args.vararg is None:
                    return len(method.args.args) - 1
    raise ConfigError(f"task {task.name!r}: its Model has no forward with a fixed number of arguments")
