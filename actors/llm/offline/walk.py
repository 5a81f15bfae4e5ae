"""Goes through the statements of a reference's `forward` with shapes instead of numbers; nothing of it is run.

Covered: assignments, arithmetic, comparisons, indexing, attributes and modules set in `__init__`, methods, functions
and classes of the reference's own, conditions known beforehand, and the operations of `rules.py` and `stages/rules.py`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

from actors.llm.offline.arithmetic import ARITHMETIC, COMPARISONS, plain_call
from actors.llm.offline.constants import Constants
from actors.llm.offline.graph import NoRuleError, TensorInfo
from actors.llm.offline.modules import MODULES
from actors.llm.offline.rules import RULES
from actors.llm.offline.rules import power as traced_power
from actors.llm.offline.stages.rules import STAGED_RULES
from actors.llm.offline.tracing import Item, Traced, Tracer, Value

_ALL = {**RULES, **STAGED_RULES}
_FLOAT32_MAX = 3.4028234663852886e38
_SEVERAL = frozenset({"mean", "sum", "amax", "amin", "view", "reshape", "permute", "expand", "repeat", "transpose"})
"""Methods that take dimensions or sizes one by one."""
_MAX_DEPTH = 8


class Walk:
    """One body of statements in progress: `forward`, or a function that it calls."""

    def __init__(
        self,
        tracer: Tracer,
        constants: Constants,
        tensors: Mapping[str, TensorInfo],
        *,
        prefix: str = "",
        depth: int = 0,
    ) -> None:
        """Start with nothing bound.

        Args:
            tracer: takes what is computed.
            constants: of the class whose method this is.
            tensors: inputs and parameters by name.
            prefix: what stands before the names of this module's parameters; empty or ends in a dot.
            depth: calls above this one.
        """
        self._tracer = tracer
        self._constants = constants
        self._tensors = tensors
        self._prefix = prefix
        self._depth = depth
        self.values: dict[str, Value] = {}

    def run(self, body: list[ast.stmt]) -> Value:
        """Return what the statements return.

        Raises:
            NoRuleError: a statement without a rule, or none that returns.
        """
        found = self._run(body)
        if found is None:
            raise NoRuleError("a `forward` that returns nothing")
        return found[0]

    def _run(self, body: list[ast.stmt]) -> tuple[Value] | None:
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return (self.evaluate(value),)
                case ast.If(test=test, body=then, orelse=other):
                    found = self._run(then if self._known(test) else other)
                    if found is not None:
                        return found
                case _:
                    self._execute(statement)
        return None

    def _execute(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = self.evaluate(value)
                for target in targets:
                    self._assign(target, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.evaluate(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self.values[name] = self._arithmetic(op, self.evaluate(target), self.evaluate(value))
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case _:
                raise NoRuleError(f"the statement `{ast.unparse(statement).splitlines()[0]}`")

    def _known(self, test: ast.expr) -> bool:
        value = self.evaluate(test)
        if isinstance(value, Traced):
            raise NoRuleError(f"the condition `{ast.unparse(test)}` on a tensor's contents")
        return bool(value)

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises:
            NoRuleError: it holds something without a rule.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._parts(parts))
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.evaluate(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self.evaluate(left), self.evaluate(right))
            case _:
                return self._primary(node)

    def _parts(self, parts: list[ast.expr]) -> list[Value]:
        """Return the values of a list of expressions, starred ones taken apart."""
        found: list[Value] = []
        for part in parts:
            if isinstance(part, ast.Starred):
                value = self.evaluate(part.value)
                if not isinstance(value, tuple):
                    raise NoRuleError(f"the argument `{ast.unparse(part)}`")
                found += value
            else:
                found.append(self.evaluate(part))
        return found

    def _primary(self, node: ast.expr) -> Value:
        match node:
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=value, slice=index):
                return self._item(self.evaluate(value), index)
            case ast.Call():
                return self._call(node)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
                return self._compared(op, self.evaluate(left), self.evaluate(right))
            case ast.IfExp(test=test, body=then, orelse=other):
                return self.evaluate(then if self._known(test) else other)
            case _:
                raise NoRuleError(f"the expression `{ast.unparse(node)}`")

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        match op, value:
            case ast.USub(), int() | float():
                return -value
            case ast.USub(), Traced():
                return self._tracer.unary("neg", value)
            case ((ast.Invert() | ast.Not()), Traced()):
                return self._apply("logical_not", [value], {})
            case ast.Not(), _:
                return not value
            case _:
                raise NoRuleError(f"the operator `{type(op).__name__}` on {value!r}")

    def _compared(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        name, compute = COMPARISONS[type(op)]
        if isinstance(left, Traced) or isinstance(right, Traced):
            return self._apply(name, [left, right], {}) if name else compute(left, right)
        return compute(left, right)

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.values[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, tuple) and len(parts) == len(value):
                for part, item in zip(parts, value, strict=True):
                    self._assign(part, item)
            case _:
                raise NoRuleError(f"an assignment to `{ast.unparse(target)}`")

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self._constants.globals:
            return self._constants.globals[name]
        if name in {"float", "int", "bool"}:
            return name  # a dtype
        raise NoRuleError("a method or module that `__init__` does not set" if name == "self" else f"the name `{name}`")

    def _arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        if type(op) not in ARITHMETIC:
            raise NoRuleError(f"the operator `{type(op).__name__}`")
        name, compute = ARITHMETIC[type(op)]
        if isinstance(left, int | float) and isinstance(right, int | float):
            return compute(left, right)
        if isinstance(left, tuple) and isinstance(right, tuple) and name == "add":
            return (*left, *right)
        if name == "pow":
            return traced_power(self._tracer, left, right)
        if name in RULES:
            return self._tracer.binary(name, left, right)
        return self._apply(name, [left, right], {})

    def _attribute(self, node: ast.Attribute) -> Value:
        text = ast.unparse(node)
        if text.startswith("self."):
            return self._own(text.removeprefix("self."))
        if re.fullmatch(r"torch\.finfo\(.*\)\.(min|max)", text):
            return -_FLOAT32_MAX if node.attr == "min" else _FLOAT32_MAX
        known: dict[str, Value] = {"torch.pi": math.pi, "math.pi": math.pi, "math.inf": math.inf, "torch.inf": math.inf}
        if text in known:
            return known[text]
        if re.fullmatch(r"torch\.\w+", text):
            return text  # a dtype
        return self._attribute_of(self.evaluate(node.value), node.attr, text)

    def _attribute_of(self, value: Value, name: str, text: str) -> Value:
        if name == "values" and isinstance(value, tuple):
            return value[0]
        if isinstance(value, Traced):
            match name:
                case "shape":
                    return value.shape
                case "dtype" | "device":
                    return name
                case "T" | "mT":
                    return self._apply("transpose", [value, -2, -1], {})
                case "ndim":
                    return len(value.shape)
                case _:
                    pass
        raise NoRuleError(f"the attribute `{text}`")

    def _own(self, path: str) -> Value:
        """Return a parameter or a plain attribute of the module."""
        full = f"{self._prefix}{path}"
        if full in self._tensors:
            return self._tracer.load(self._tensors[full])
        if path in self._constants.attributes:
            return self._constants.attributes[path]
        made, _, name = path.rpartition(".")
        if name == "bias" and made in self._constants.modules:
            return None
        raise NoRuleError(f"the attribute `self.{path}`")

    def _item(self, value: Value, index: ast.expr) -> Value:
        if isinstance(value, Traced):
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return self._tracer.indexed(value, [self._bracket(part) for part in parts])
        if isinstance(value, tuple) and isinstance(index, ast.Slice):
            found = self._bracket(index)
            return value[slice(*found)] if isinstance(found, tuple) else None
        position = self.evaluate(index)
        if isinstance(value, dict) and position in value:
            return value[position]
        if not isinstance(value, tuple) or not isinstance(position, int):
            raise NoRuleError(f"the index `[{ast.unparse(index)}]`")
        return value[position]

    def _bracket(self, part: ast.expr) -> Item:
        """Return what stands in the brackets of an index, as `Item` has it."""
        match part:
            case ast.Constant(value=value) if value is ...:
                return "..."
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = [None if end is None else self.evaluate(end) for end in (lower, upper, step)]
                known = tuple(end for end in ends if end is None or isinstance(end, int))
                if len(known) == len(ends):
                    return known
            case _:
                position = self.evaluate(part)
                if position is None or isinstance(position, int):
                    return position
        raise NoRuleError(f"the index `[{ast.unparse(part)}]`")

    def _call(self, node: ast.Call) -> Value:
        args = self._parts(node.args)
        kwargs = {keyword.arg: self.evaluate(keyword.value) for keyword in node.keywords if keyword.arg}
        name = ast.unparse(node.func)
        own = name.removeprefix("self.")
        if own != name and own in self._constants.modules:
            return self._apply_module(own, args, kwargs)
        if own != name and own in self._constants.methods:
            return self._apply_function(self._constants, self._constants.methods[own], args, kwargs, skip=1)
        if name in self._constants.functions:
            return self._apply_function(self._constants, self._constants.functions[name], args, kwargs)
        plain = plain_call(name, args)
        if plain is not None:
            return plain
        if isinstance(node.func, ast.Attribute) and _root(node.func) not in self._constants.namespaces:
            return self._method(self.evaluate(node.func.value), node.func.attr, args, kwargs)
        if name in {"torch.ones", "torch.zeros"} and len(args) > 1:
            args = [tuple(args)]
        return self._apply(self._constants.full_name(name), args, kwargs)

    def _method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "size" and isinstance(owner, Traced):
            return owner.shape[args[0]] if args and isinstance(args[0], int) else owner.shape
        if name in {"dim", "ndimension"} and isinstance(owner, Traced):
            return len(owner.shape)
        if name == "numel" and isinstance(owner, Traced):
            return math.prod(owner.shape)
        sizes = all(isinstance(arg, int) and not isinstance(arg, bool) for arg in args)
        if name in _SEVERAL and name != "transpose" and len(args) > 1 and sizes:
            args = [tuple(args)]
        return self._apply(name, [owner, *args], kwargs)

    def _apply(self, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        short = name.rsplit(".", 1)[-1].removesuffix("_")
        if short not in _ALL:
            raise NoRuleError(f"the operation `{name}`")
        if "axis" in kwargs:
            kwargs = {**kwargs, "dim": kwargs["axis"]}
            del kwargs["axis"]
        return _ALL[short].call(short, self._tracer, args, kwargs)

    def _apply_function(
        self,
        constants: Constants,
        function: ast.FunctionDef,
        args: list[Value],
        kwargs: dict[str, Value],
        *,
        skip: int = 0,
        prefix: str | None = None,
    ) -> Value:
        """Go through a function of the reference's own; `skip` leaves out `self`."""
        if self._depth == _MAX_DEPTH:
            raise NoRuleError(f"the recursion of `{function.name}`")
        inner = Walk(
            self._tracer,
            constants,
            self._tensors,
            prefix=self._prefix if prefix is None else prefix,
            depth=self._depth + 1,
        )
        names = [argument.arg for argument in function.args.args[skip:]]
        defaults = function.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            inner.values[name] = inner.evaluate(default)
        inner.values |= {**dict(zip(names, args, strict=False)), **kwargs}
        return inner.run(function.body)

    def _apply_module(self, path: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Apply a module that `__init__` made; its parameters are those that the task lists under its name."""
        made = self._constants.modules[path]
        full = f"{self._prefix}{path}"
        if isinstance(made, Constants):
            return self._apply_function(made, made.forward, args, kwargs, skip=1, prefix=f"{full}.")
        kind, own, keywords = made
        if kind == "Sequential":
            value = args[0]
            for number in range(len(own)):
                value = self._apply_module(f"{path}.{number}", [value], {})
            return value
        if kind not in MODULES:
            raise NoRuleError(f"the module `{kind}`")
        rule, names = MODULES[kind]
        given: dict[str, Value] = {**dict(zip(names.split(), own, strict=False)), **keywords}
        given = {name: value for name, value in given.items() if name in names.split() and not name.startswith("_")}
        for parameter in ("weight", "bias"):
            if f"{full}.{parameter}" in self._tensors:
                given[parameter] = self._tracer.load(self._tensors[f"{full}.{parameter}"])
        return _ALL[rule].call(kind, self._tracer, args, {**given, **kwargs})


def _root(function: ast.expr) -> str:
    """Return the first name of a dotted one; empty for a method of what an expression returns, as in `f(x).mean()`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
