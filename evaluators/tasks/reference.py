"""A task's own reference as a candidate: what evaluates to about 1x if task and evaluator are in order."""

from __future__ import annotations

import ast

from evaluators.tasks.tritonbench.packing import gold_candidate
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSpec

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
"""Outputs that are a row of tensors, which is all that a destination can be."""


def reference_candidate(task: TaskSpec) -> Candidate:
    """Return the reference program of a task of kernels in a candidate's place, called as the task has it.

    Raises:
        ConfigError: candidates are functions, and the arguments of the reference cannot be counted.
    """
    if task.source == "tritonbench":
        return gold_candidate(task)  # a program as candidates are; the problem text traces a test
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
    """Return how many arguments the reference takes.

    Raises:
        ConfigError: it has no `forward` that says so.
    """
    for node in ast.parse(task.text).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward" and method.args.vararg is None:
                    return len(method.args.args) - 1
    raise ConfigError(f"task {task.name!r}: its Model has no forward whose arguments could be counted")
