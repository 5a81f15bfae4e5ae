"""Writes the problem file of an own task: its function, called as the judge calls references.

Inputs are drawn from distributions:

    normal, normal(MEAN, DEVIATION)   floating dtypes; the default
    uniform, uniform(LOW, HIGH)       floating dtypes; [0, 1) by default
    zeros, ones                       any dtype
    integers(LOW, HIGH)               any dtype but bool; LOW <= value < HIGH, both expressions over dimensions
    permutation                       integers; one dimension: 0 … n - 1, in another order each time
    bernoulli(P)                      any dtype; 1 with probability P, else 0

Shapes and the numbers of distributions may be expressions over a workload's dimensions: `"2 * rows"`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evaluators.tasks.own.document import DOCUMENT, DTYPES, Document, Input
from evaluators.tasks.own.functions import Function
from messages.base import ConfigError
from messages.tasks import Dimension, Workload


def write_problem(
    document: Document, function: Function, maker: Function | None, workloads: Sequence[Workload], own: str = ""
) -> str:
    """Return a problem file.

    Args:
        document: document of the task.
        function: the reference.
        maker: function that makes the inputs; null: they are drawn from the document's distributions.
        workloads: workloads of the task; drawing is tried with their dimensions.
        own: the reference's file if it is the only one, which is then inlined in the problem file, where models and our
            own rules read it in one piece. Empty: it is imported.

    Raises:
        ConfigError: an input cannot be drawn; names it and the reason.
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
    """Return a reference's file for inlining, without docstring and future; empty if it cannot be inlined."""
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
    """Return the arguments of `Model.forward`.

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
    """Return the parameters of `forward`: the last ones with a default, if all workloads have the same value."""
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
    written = [_written_input(one, dimensions, workloads) for one in document.inputs]
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


def _written_input(one: Input, dimensions: Sequence[str], workloads: Sequence[Workload]) -> str:
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


_CALL = re.compile(r"(?P<name>[a-z]+)(?:\((?P<arguments>.*)\))?")


class _Kind(msgspec.Struct, frozen=True):
    counts: tuple[int, ...]
    """Permitted numbers of arguments."""
    fits: Callable[[str], bool]
    """Returns True if it can be drawn in a dtype."""
    text: str
    """The expression, with `{shape}`, `{dtype}`, `{0}`, `{1}`."""
    defaults: tuple[str, ...] = ()


def _is_floating(dtype: str) -> bool:
    return "float" in dtype


def _is_integer(dtype: str) -> bool:
    return "int" in dtype


KINDS: Mapping[str, _Kind] = {
    "normal": _Kind((0, 2), _is_floating, "torch.randn({shape}, dtype={dtype}) * ({1}) + ({0})", ("0.0", "1.0")),
    "uniform": _Kind((0, 2), _is_floating, "torch.empty({shape}, dtype={dtype}).uniform_({0}, {1})", ("0.0", "1.0")),
    "zeros": _Kind((0,), lambda _: True, "torch.zeros({shape}, dtype={dtype})"),
    "ones": _Kind((0,), lambda _: True, "torch.ones({shape}, dtype={dtype})"),
    "integers": _Kind((2,), lambda dtype: dtype != "bool", "torch.randint({0}, {1}, {shape}).to({dtype})"),
    "permutation": _Kind((0,), _is_integer, "torch.randperm(*{shape}).to({dtype})"),
    "bernoulli": _Kind((1,), lambda _: True, "(torch.rand({shape}) < ({0})).to({dtype})"),
}


def drawn(distribution: str | None, dtype: str, shape: Sequence[str], where: str) -> tuple[str, tuple[ast.expr, ...]]:
    """Return the expression that draws an input, and the expressions over dimensions in it.

    Args:
        distribution: distribution in the document; None: not given.
        dtype: torch's name without the prefix.
        shape: expressions over dimensions.
        where: file and key, for messages.

    Raises:
        ConfigError: there is no such distribution, or not of this dtype or shape.
    """
    if distribution is None:
        if not _is_floating(dtype):
            raise ConfigError(
                f'{where}: an input of dtype {dtype} needs a distribution: "integers(0, 10)", "bernoulli(0.5)", '
                '"permutation", "zeros" or "ones"'
            )
        distribution = "normal"
    found = _CALL.fullmatch(distribution.strip())
    kind = KINDS.get(found["name"]) if found else None
    if found is None or kind is None:
        raise ConfigError(f"{where}: unknown distribution {distribution!r}; there are: {', '.join(KINDS)}")
    given = _arguments(found["arguments"] or "", where)
    if len(given) not in kind.counts:
        counts = " or ".join(map(str, kind.counts))
        raise ConfigError(f"{where}: {found['name']} takes {counts} numbers in parentheses, not {len(given)}")
    if not kind.fits(dtype):
        raise ConfigError(f"{where}: {found['name']} cannot be drawn in dtype {dtype}")
    if found["name"] == "permutation" and len(shape) != 1:
        raise ConfigError(f"{where}: a permutation has one dimension, not {len(shape)}")
    sizes = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
    texts = [ast.unparse(one) for one in given] or list(kind.defaults)
    if texts == ["0.0", "1.0"] and found["name"] == "normal":
        return f"torch.randn({sizes}, dtype=torch.{dtype})", ()
    return kind.text.format(*texts, shape=sizes, dtype=f"torch.{dtype}"), given


def _arguments(text: str, where: str) -> tuple[ast.expr, ...]:
    if not text.strip():
        return ()
    found = parse(f"min({text}, 0)", where)
    return tuple(found.args[:-1]) if isinstance(found, ast.Call) else ()


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max}
_UNDERSTOOD = "numbers, dimensions, + - * / // %, min(…) and max(…)"


def parse(text: str, where: str) -> ast.expr:
    """Return an expression that contains only supported parts.

    Raises:
        ConfigError: a part is not supported.
    """
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{where}: {text!r} is no expression; there are {_UNDERSTOOD}") from error
    for node in ast.walk(expression):
        if not _is_understood(node):
            raise ConfigError(f"{where}: {text!r} holds {ast.unparse(node)!r}; there are {_UNDERSTOOD}")
    return expression


def names_in(expression: ast.expr) -> tuple[str, ...]:
    """Return the dimensions that an expression names."""
    called = {node.func for node in ast.walk(expression) if isinstance(node, ast.Call)}
    found = [node.id for node in ast.walk(expression) if isinstance(node, ast.Name) and node not in called]
    return tuple(dict.fromkeys(found))


def evaluate(expression: ast.expr, dimensions: Mapping[str, Dimension], where: str) -> float:
    """Return the value of an expression for a workload.

    Raises:
        ConfigError: a dimension is missing or not a number, or a division is by zero.
    """
    try:
        return _value(expression, dimensions)
    except KeyError as error:
        raise ConfigError(f"{where}: there is no dimension {error.args[0]!r}") from error
    except TypeError as error:
        raise ConfigError(f"{where}: {ast.unparse(expression)!r} needs dimensions that are numbers") from error
    except ZeroDivisionError as error:
        raise ConfigError(f"{where}: {ast.unparse(expression)!r} divides by zero") from error


def _value(node: ast.expr, dimensions: Mapping[str, Dimension]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            found = dimensions[name]
            if isinstance(found, str):
                raise TypeError(name)
            return found
        case ast.UnaryOp(operand=operand):
            return -_value(operand, dimensions)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, dimensions), _value(right, dimensions))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(one, dimensions) for one in args))
        case _:
            raise TypeError(ast.unparse(node))


def _is_understood(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.BinOp(op=op):
            return type(op) in _OPERATORS
        case ast.UnaryOp(op=op):
            return isinstance(op, ast.USub)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _FUNCTIONS and len(args) > 1
        case ast.Name() | ast.operator() | ast.unaryop() | ast.expr_context():
            return True
        case _:
            return False
