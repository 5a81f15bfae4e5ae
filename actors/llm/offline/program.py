"""Reads a reference program: its `forward`, gone through with shapes instead of numbers, becomes a graph.

Nothing of the program is run. Covered: assignments, arithmetic, attributes set in `__init__`, the operations of
`rules.py`; whatever else occurs is named in a `NoRuleError`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

from actors.llm.offline.constants import Constants, read_constants
from actors.llm.offline.graph import NoRuleError, Program, TensorInfo
from actors.llm.offline.rules import MODULES, RULES
from actors.llm.offline.rules import power as traced_power
from actors.llm.offline.tracing import Shape, Traced, Tracer, Value, broadcast

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.Pow: ("pow", operator.pow),
}
_FLAT_COLUMNS = 16_384
"""Longest row into which a program without reductions is cut."""


def read_program(source: str, tensors: tuple[TensorInfo, ...]) -> Program:
    """Return what the reference computes.

    Args:
        source: the problem file.
        tensors: inputs in call order, then parameters, then outputs.

    Raises:
        NoRuleError: it holds something that the rules do not cover, or is no Python.
    """
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise NoRuleError(f"a reference that is no Python (line {error.lineno}: {error.msg})") from error
    constants = read_constants(module)
    full: Shape = ()
    for tensor in tensors:
        if tensor.role != "output":
            full = broadcast(full, tensor.shape)
    failure = NoRuleError("a program without tensors")
    for trailing in range(1, len(full) + 1):
        try:
            return _trace(Tracer(full, trailing), constants, tensors)
        except NoRuleError as error:
            failure = failure if trailing > 1 else error
    raise failure


def _trace(tracer: Tracer, constants: Constants, tensors: tuple[TensorInfo, ...]) -> Program:
    inputs = tuple(tensor for tensor in tensors if tensor.role == "input")
    names = [argument.arg for argument in constants.forward.args.args[1:]]
    if len(names) < len(inputs):
        raise NoRuleError(f"`forward` with the arguments {names} for {len(inputs)} inputs")
    walk = _Walk(tracer, constants, {tensor.name: tensor for tensor in tensors if tensor.role != "output"})
    for name, tensor in zip(names, inputs, strict=False):
        walk.values[name] = tracer.load(tensor)
    result = walk.run(constants.forward.body)
    results = result if isinstance(result, tuple) else (result,)
    outputs = tuple(tracer.tensor(value) for value in results)
    expected = tuple(tensor.shape for tensor in tensors if tensor.role == "output")
    if tuple(output.shape for output in outputs) != expected:
        raise NoRuleError(f"results of shapes {[output.shape for output in outputs]}, expected {list(expected)}")
    return _finished(tracer, outputs, tensors)


def _finished(tracer: Tracer, outputs: tuple[Traced, ...], tensors: tuple[TensorInfo, ...]) -> Program:
    """Cut programs that know no rows into rows of a handy length."""
    nodes = tuple(tracer.graph.nodes)
    indices = tuple(output.index for output in outputs)
    if any(nodes[index].kind not in {"full", "row"} for index in indices):
        raise NoRuleError("an output that does not depend on every input's shape")
    rows, columns = tracer.rows, tracer.columns
    if all(node.kind in {"full", "scalar"} for node in nodes):
        size = rows * columns
        columns = max(width for width in range(1, min(size, _FLAT_COLUMNS) + 1) if size % width == 0)
        rows = size // columns
    return Program(nodes=nodes, outputs=indices, rows=rows, columns=columns, tensors=tensors)


def _root(function: ast.expr) -> str:
    """Return the first name of a dotted one; empty for a method of what an expression returns, as in `f(x).mean()`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


class _Walk:
    """Goes through the statements of `forward`."""

    def __init__(self, tracer: Tracer, constants: Constants, tensors: dict[str, TensorInfo]) -> None:
        self._tracer = tracer
        self._constants = constants
        self._tensors = tensors
        self.values: dict[str, Value] = {}

    def run(self, body: list[ast.stmt]) -> Value:
        """Return what the statements return.

        Raises:
            NoRuleError: a statement without a rule, or none that returns.
        """
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.evaluate(value)
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, self.evaluate(value))
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, self.evaluate(value))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    self.values[name] = self._arithmetic(op, self.values[name], self.evaluate(value))
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise NoRuleError(f"the statement `{ast.unparse(statement).splitlines()[0]}`")
        raise NoRuleError("a `forward` that returns nothing")

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises:
            NoRuleError: it holds something without a rule.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self.evaluate(part) for part in parts)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._negated(self.evaluate(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self.evaluate(left), self.evaluate(right))
            case _:
                return self._primary(node)

    def _primary(self, node: ast.expr) -> Value:
        match node:
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=value, slice=index):
                return self._item(self.evaluate(value), index)
            case ast.Call():
                return self._call(node)
            case _:
                raise NoRuleError(f"the expression `{ast.unparse(node)}`")

    def _negated(self, value: Value) -> Value:
        return -value if isinstance(value, int | float) else self._tracer.unary("neg", value)

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.values[name] = value
            case ast.Tuple(elts=parts) if isinstance(value, tuple) and len(parts) == len(value):
                for part, item in zip(parts, value, strict=True):
                    self._assign(part, item)
            case _:
                raise NoRuleError(f"an assignment to `{ast.unparse(target)}`")

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self._constants.globals:
            return self._constants.globals[name]
        raise NoRuleError(f"the name `{name}`")

    def _arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        if type(op) not in _ARITHMETIC:
            raise NoRuleError(f"the operator `{type(op).__name__}`")
        name, compute = _ARITHMETIC[type(op)]
        if isinstance(left, int | float) and isinstance(right, int | float):
            return compute(left, right)
        if name == "pow":
            return traced_power(self._tracer, left, right)
        return self._tracer.binary(name, left, right)

    def _attribute(self, node: ast.Attribute) -> Value:
        text = ast.unparse(node)
        if text.startswith("self."):
            return self._own(text.removeprefix("self."))
        if text in {"torch.pi", "math.pi"}:
            return math.pi
        if re.fullmatch(r"torch\.\w+", text):
            return text  # a dtype
        value = self.evaluate(node.value)
        if node.attr == "values" and isinstance(value, tuple):
            return value[0]
        if isinstance(value, Traced) and node.attr == "shape":
            return value.shape
        if isinstance(value, Traced) and node.attr == "dtype":
            return "dtype"
        raise NoRuleError(f"the attribute `{text}`")

    def _own(self, path: str) -> Value:
        """Return a parameter or a plain attribute of the module."""
        if path in self._tensors:
            return self._tracer.load(self._tensors[path])
        if path in self._constants.attributes:
            return self._constants.attributes[path]
        raise NoRuleError(f"the attribute `self.{path}`")

    def _item(self, value: Value, index: ast.expr) -> Value:
        if isinstance(value, Traced):
            if ast.unparse(index).replace(" ", "") not in {"...,None", "(...,None)", "(:,None)", ":,None"}:
                raise NoRuleError(f"the index `[{ast.unparse(index)}]`")
            return self._tracer.reshaped(value, (*value.shape, 1))
        position = self.evaluate(index)
        if not isinstance(value, tuple) or not isinstance(position, int):
            raise NoRuleError(f"the index `[{ast.unparse(index)}]`")
        return value[position]

    def _call(self, node: ast.Call) -> Value:
        args = [self.evaluate(arg) for arg in node.args]
        kwargs = {keyword.arg: self.evaluate(keyword.value) for keyword in node.keywords if keyword.arg}
        name = ast.unparse(node.func)
        if name.startswith("self.") and name.removeprefix("self.") in self._constants.modules:
            return self._apply_module(name.removeprefix("self."), args)
        if name in {"float", "int", "math.sqrt"} and isinstance(args[0], int | float):
            return math.sqrt(args[0]) if name == "math.sqrt" else float(args[0])
        if isinstance(node.func, ast.Attribute) and _root(node.func) not in self._constants.namespaces:
            return self._method(node.func, args, kwargs)
        return self._apply(self._constants.full_name(name), args, kwargs)

    def _method(self, function: ast.Attribute, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner = self.evaluate(function.value)
        if function.attr == "size" and isinstance(owner, Traced):
            return owner.shape[args[0]] if args and isinstance(args[0], int) else owner.shape
        if function.attr == "dim" and isinstance(owner, Traced):
            return len(owner.shape)
        if function.attr in {"mean", "sum", "amax", "amin"} and len(args) > 1 and not isinstance(args[1], bool):
            args = [tuple(args)]
        return self._apply(function.attr, [owner, *args], kwargs)

    def _apply(self, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        short = name.rsplit(".", 1)[-1].removesuffix("_")
        if short not in RULES:
            raise NoRuleError(f"the operation `{name}`")
        if "axis" in kwargs:
            kwargs = {**kwargs, "dim": kwargs["axis"]}
            del kwargs["axis"]
        return RULES[short].call(short, self._tracer, args, kwargs)

    def _apply_module(self, path: str, args: list[Value]) -> Value:
        """Apply a torch.nn module that `__init__` made; its parameters are those that the task lists under its name."""
        kind, own, keywords = self._constants.modules[path]
        if kind not in MODULES:
            raise NoRuleError(f"the module `{kind}`")
        rule, names = MODULES[kind]
        kwargs: dict[str, Value] = {**dict(zip(names.split(), own, strict=False)), **keywords}
        kwargs.pop("elementwise_affine", None)
        for parameter in ("weight", "bias"):
            if f"{path}.{parameter}" in self._tensors:
                kwargs[parameter] = self._tracer.load(self._tensors[f"{path}.{parameter}"])
        return RULES[rule].call(kind, self._tracer, args, kwargs)
