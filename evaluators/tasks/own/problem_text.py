"""Writes the problem file of a task of one's own: its function, called as our judge calls references."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from evaluators.tasks.own.distributions import drawn
from evaluators.tasks.own.document import DOCUMENT, DTYPES, Document, Input
from evaluators.tasks.own.expressions import evaluate, names_in, parse
from evaluators.tasks.own.functions import Function
from messages.base import ConfigError
from messages.tasks import Dimension, Workload


def write_problem(
    document: Document, function: Function, maker: Function | None, workloads: Sequence[Workload], own: str = ""
) -> str:
    """Return a problem file.

    Args:
        document: of the task.
        function: the reference.
        maker: what makes the inputs; null: they are drawn as the document says.
        workloads: of the task; what is drawn is tried on their dimensions.
        own: the text of the reference's file, if it is the only one: then it stands in the problem file itself, where
            models and our own rules read it in one piece. Empty: it is imported.

    Raises:
        ConfigError: an input cannot be drawn: which, and why.
    """
    names = maker_arguments(document, function, maker)
    imports = [own.strip()] if own else [f"from {function.module} import {function.name}"]
    if maker is not None:
        imports.append(f"from {maker.module} import {maker.name}")
    lines = [
        f'"""{_one_line(document.description) or document.name}"""',
        "",
        "from __future__ import annotations",
        "",
        "import torch",
        "from torch import nn",
        "",
        *imports,
        *_kept(document),
        "",
        "",
        "class Model(nn.Module):",
        f"    def forward(self, {', '.join(_parameters(document, names, workloads))}):",
        f"        return {function.name}({', '.join(names)})",
        "",
        "",
        *_get_inputs(document, maker, workloads),
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def standing_alone(text: str) -> str:
    """Return a reference's file as it can stand in a problem file: without docstring and future; empty if it cannot."""
    tree = ast.parse(text)
    defined = {one for node in tree.body for one in (getattr(node, "name", ""), *_assigned(node))}
    if defined & {"Model", "get_inputs", "get_init_inputs", "AS_DRAWN", "WORKLOADS", "HIDDEN_WORKLOADS"}:
        return ""
    lines = text.splitlines(keepends=True)
    first = tree.body[0] if ast.get_docstring(tree) is not None else None
    for node in [first, *tree.body]:
        if node is not None and (node is first or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "".join(lines)


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def maker_arguments(document: Document, function: Function, maker: Function | None) -> tuple[str, ...]:
    """Return what `Model.forward` takes.

    Raises:
        ConfigError: function and inputs do not fit.
    """
    if maker is not None or isinstance(document.inputs, str):
        return function.arguments
    names = tuple(one.name for one in document.inputs)
    expected = function.arguments[: max(function.required, len(names))]
    if names != expected and not function.takes_more:
        raise ConfigError(
            f"{DOCUMENT}, inputs: {function.name}({', '.join(function.arguments)}) in {function.path!r} is given "
            f"({', '.join(names)}); name the inputs as its arguments, in their order"
        )
    return names


def _parameters(document: Document, names: Sequence[str], workloads: Sequence[Workload]) -> list[str]:
    """Return the parameters of `forward`: the last ones with a default, as far as all workloads have the same."""
    inputs = () if isinstance(document.inputs, str) else document.inputs
    dimensions = {name for one in workloads for name in one.dimensions}
    written = list(names)
    for at in range(len(inputs) - 1, -1, -1):
        value = inputs[at].value
        if value is None or value in dimensions:
            break
        written[at] = f"{names[at]}={value!r}"
    return written


def _kept(document: Document) -> list[str]:
    if isinstance(document.inputs, str):
        return []
    names = [one.name for one in document.inputs if one.as_drawn]
    return ["", f"AS_DRAWN = {names!r}"] if names else []


def _get_inputs(document: Document, maker: Function | None, workloads: Sequence[Workload]) -> list[str]:
    if maker is not None:
        return [
            f"def get_inputs({', '.join(maker.arguments)}):",
            f"    return {maker.name}({', '.join(maker.arguments)})",
        ]
    if isinstance(document.inputs, str):
        raise TypeError("inputs that a function makes have a maker")
    dimensions = tuple(dict.fromkeys(name for one in workloads for name in one.dimensions))
    written = [_written(one, dimensions, workloads) for one in document.inputs]
    taken = {node.id for text in written for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    if idle := next((name for name in dimensions if name not in taken), None):
        raise ConfigError(
            f"{DOCUMENT}, workloads: no input has the dimension {idle!r}; use it in a shape, or remove it"
        )
    return [
        f"def get_inputs({', '.join(dimensions)}):",
        "    return [",
        *(f"        {text}," for text in written),
        "    ]",
    ]


def _written(one: Input, dimensions: Sequence[str], workloads: Sequence[Workload]) -> str:
    where = f"{DOCUMENT}, input {one.name!r}"
    if (one.shape is None) == (one.value is None):
        raise ConfigError(f"{where}: give either a shape (it is a tensor) or a value (it is the same in every call)")
    if one.value is not None:
        return _constant(one.value, one, dimensions, where)
    if one.dtype not in DTYPES:
        raise ConfigError(f"{where}: unknown dtype {one.dtype!r}; there are: {', '.join(DTYPES)}")
    sizes = [parse(str(size), f"{where}, shape") for size in one.shape or ()]
    text, others = drawn(one.distribution, one.dtype, [ast.unparse(size) for size in sizes], where)
    _check_names((*sizes, *others), dimensions, where)
    for workload in workloads:
        for size in sizes:
            _check_size(size, workload, where)
        for expression in others:
            evaluate(expression, workload.dimensions, f"{where}, workload {workload.name!r}")
    return text


def _check_names(expressions: Sequence[ast.expr], dimensions: Sequence[str], where: str) -> None:
    named = (name for expression in expressions for name in names_in(expression))
    if unknown := next((name for name in named if name not in dimensions), None):
        there = ", ".join(dimensions) or "there are none"
        raise ConfigError(f"{where}: {unknown!r} is no dimension of the workloads ({there})")


def _constant(value: Dimension, one: Input, dimensions: Sequence[str], where: str) -> str:
    if one.distribution is not None or one.as_drawn:
        raise ConfigError(f"{where}: it has a value, so it is not drawn: leave distribution and as_drawn out")
    return value if isinstance(value, str) and value in dimensions else repr(value)


def _check_size(size: ast.expr, workload: Workload, where: str) -> None:
    place = f"{where}, workload {workload.name!r}"
    found = evaluate(size, workload.dimensions, place)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ConfigError(f"{place}: {ast.unparse(size)!r} is {found}; a size is a whole number of at least 1")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("\\", "/").replace('"', "'")
