"""What can be said of a problem from its text alone: nothing of it is run, and no torch is imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from messages.tasks import TaskSpec


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
    sizes: dict[str, dict[str, int]] = {}
    """Size → dimension → extent, where the problem has a table of them."""


def facts_of(task: TaskSpec) -> ProblemFacts:
    """Read a problem's docstrings and its table of sizes; what it does not say stays empty."""
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
        sizes=_sizes(tree.body),
    )


def _class(body: Sequence[ast.stmt], name: str) -> ast.ClassDef | None:
    return next((node for node in body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _function(body: Sequence[ast.stmt], name: str) -> ast.FunctionDef | None:
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _sizes(body: Sequence[ast.stmt]) -> dict[str, dict[str, int]]:
    """Return the table of `ROWS, HIDDEN = {"cpu": (1024, 2048), …}[SIZE]`."""
    for node in body:
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)],
                value=ast.Subscript(value=ast.Dict() as table, slice=ast.Name(id="SIZE")),
            ):
                return _table(table, [name.id.lower() for name in names if isinstance(name, ast.Name)])
            case _:
                pass
    return {}


def _table(table: ast.Dict, names: Sequence[str]) -> dict[str, dict[str, int]]:
    try:
        extents = msgspec.convert(ast.literal_eval(table), dict[str, tuple[int, ...]])
    except (ValueError, msgspec.ValidationError):  # computed, or not of numbers: it is not for us to run it
        return {}
    return {size: dict(zip(names, numbers, strict=False)) for size, numbers in extents.items()}
