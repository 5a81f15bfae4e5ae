"""What can be said of a problem from its text alone: nothing of it is run, and no torch is imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from messages.tasks import Dimension, TaskSpec, Workload


class ProblemFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A problem as its text describes it."""

    name: str
    summary: str
    """First line of the file's docstring."""
    formula: str = ""
    """Docstring of `Model`."""
    inputs: tuple[str, ...] = ()
    """Arguments of `Model.forward`."""
    shapes: str = ""
    """Docstring of `Model.forward`: shapes and dtypes, as far as its author says them."""
    sizes: dict[str, dict[str, Dimension]] = {}
    """Workload → dimension → extent, where the problem names workloads; hidden ones are not among them."""


def facts_of(task: TaskSpec, workloads: Sequence[Workload] | None = None) -> ProblemFacts:
    """Read a problem's docstrings and its workloads; what it does not say stays empty.

    Args:
        task: the problem.
        workloads: of which it is to tell; null: the task's own.
    """
    tree = ast.parse(task.text)
    model = _class(tree.body, "Model")
    forward = _function(model.body, "forward") if model else None
    said = (ast.get_docstring(tree) or "").strip()
    return ProblemFacts(
        name=task.name,
        summary=said.partition("\n")[0],
        formula=(ast.get_docstring(model) or "") if model else "",
        inputs=tuple(argument.arg for argument in forward.args.args[1:]) if forward else (),
        shapes=(ast.get_docstring(forward) or "") if forward else "",
        sizes={one.name: one.dimensions for one in (task.shown if workloads is None else workloads)},
    )


def _class(body: Sequence[ast.stmt], name: str) -> ast.ClassDef | None:
    return next((node for node in body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _function(body: Sequence[ast.stmt], name: str) -> ast.FunctionDef | None:
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)
