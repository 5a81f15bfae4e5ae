"""Reads a reference program: constants, arithmetic, modules and calls, walked without executing them.

Covered: assignments, arithmetic, comparisons, indexing, attributes and modules set in `__init__`, methods, functions
and classes of the reference's own, conditions known beforehand, and the operations of `rules.py` and `stages/rules.py`.

A program whose tensors all share one space of rows and columns becomes a `Program`; any other one a `Staged`.
Nothing of it is run. What has no rule is named in a `NoRuleError`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from actors.llm.offline.graph import NoRuleError, Program, TensorInfo
from actors.llm.offline.stages.ir import AnyProgram, Staged
from actors.llm.offline.stages.tracing import STAGED_RULES, StagedTracer, lowered
from actors.llm.offline.tracing import FLOATING, RULES, Item, RowTracer, Shape, Traced, Tracer, Value, broadcast
from actors.llm.offline.tracing import power as traced_power

Made: TypeAlias = tuple[str, list[Value], dict[str, Value]]
"""A module: its class and the arguments it was made with."""

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class Constants(msgspec.Struct, kw_only=True):
    """Names and values known of a module's class without running the reference."""

    methods: dict[str, ast.FunctionDef]
    globals: dict[str, Value]
    functions: dict[str, ast.FunctionDef]
    """Functions of the file."""
    namespaces: dict[str, str]
    """Names that imports bind, and what they stand for."""
    classes: dict[str, ast.ClassDef]
    """Classes of the file."""
    attributes: dict[str, Value] = {}
    """Plain values that `__init__` sets on the module."""
    modules: dict[str, Made | Constants] = {}
    """Modules that `__init__` sets on the module: torch.nn's, or of the file's own classes. Those of a `Sequential`
    called `net` are `net.0`, `net.1`, ..."""

    @property
    def forward(self) -> ast.FunctionDef:
        """The method that computes."""
        return self.methods["forward"]

    def full_name(self, dotted: str) -> str:
        """Return a dotted name with its first part as it was imported: `F.silu` is `torch.nn.functional.silu`."""
        first, _, rest = dotted.partition(".")
        return f"{self.namespaces.get(first, first)}.{rest}" if rest else self.namespaces.get(first, first)


def read_constants(module: ast.Module, workload: str = "") -> Constants:
    """Collect what is known.

    Args:
        module: the problem file.
        workload: which one of those that it names is meant; empty: the first.

    Raises:
        NoRuleError: there is no `Model` with a `forward`.
    """
    known: dict[str, Value] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                _bind(known, target, value, known)
            case _:
                pass
    classes = {item.name: item for item in module.body if isinstance(item, ast.ClassDef)}
    if "Model" not in classes:
        raise NoRuleError("a reference without `Model.forward`")
    functions = {item.name: item for item in module.body if isinstance(item, ast.FunctionDef)}
    constants = Constants(methods={}, globals=known, functions=functions, namespaces=_imports(module), classes=classes)
    return _of_class("Model", _init_inputs(module, known, workload), {}, constants)


def _of_class(name: str, given: tuple[Value, ...], named: dict[str, Value], file: Constants) -> Constants:
    """Collect what is known of a class that is made with these arguments.

    Raises:
        NoRuleError: it has no `forward`.
    """
    methods = {item.name: item for item in file.classes[name].body if isinstance(item, ast.FunctionDef)}
    if "forward" not in methods:
        raise NoRuleError(f"a reference without `{name}.forward`")
    found = msgspec.structs.replace(file, methods=methods, attributes={}, modules={})
    if "__init__" in methods:
        _read_init(methods["__init__"], given, named, found)
    return found


def constant(node: ast.expr, known: dict[str, Value]) -> Value:
    """Return the value of an expression of literals, known names and arithmetic.

    Raises:
        NoRuleError: it is something else.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Name() | ast.Attribute() if ast.unparse(node) in known:
            return known[ast.unparse(node)]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(constant(part, known) for part in parts)
        case ast.Dict() | ast.Subscript():
            return _looked_up(node, known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(left, known), _number(right, known))
        case ast.Call(func=function, args=[argument]) if ast.unparse(function) == "math.sqrt":
            return math.sqrt(_number(argument, known))
        case _:
            raise NoRuleError(f"the constant `{ast.unparse(node)}`")


def _looked_up(node: ast.Dict | ast.Subscript, known: dict[str, Value]) -> Value:
    """Return a dictionary, or an item of one or of a tuple."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {constant(key, known): constant(value, known) for key, value in pairs if key is not None}
    owner, index = constant(node.value, known), constant(node.slice, known)
    if isinstance(owner, dict) and index in owner:
        return owner[index]
    if isinstance(owner, tuple) and isinstance(index, int) and -len(owner) <= index < len(owner):
        return owner[index]
    raise NoRuleError(f"the constant `{ast.unparse(node)}`")


def _number(node: ast.expr, known: dict[str, Value]) -> float:
    value = constant(node, known)
    if not isinstance(value, int | float):
        raise NoRuleError(f"`{ast.unparse(node)}` as a number")
    return value


def _keep(target: dict[str, Value], name: str, node: ast.expr, known: dict[str, Value]) -> None:
    """Note a constant; what is none stays unknown and is only missed if `forward` asks for it."""
    try:
        target[name] = constant(node, known)
    except NoRuleError:
        target.pop(name, None)


def _bind(target: dict[str, Value], names: ast.expr, node: ast.expr, known: dict[str, Value]) -> None:
    """Note a constant under a name, or the parts of a tuple under several."""
    match names:
        case ast.Name(id=name):
            _keep(target, name, node, known)
        case ast.Tuple(elts=parts):
            found: dict[str, Value] = {}
            _keep(found, "", node, known)
            values = found.get("")
            if isinstance(values, tuple) and len(values) == len(parts):
                target |= {
                    part.id: value for part, value in zip(parts, values, strict=True) if isinstance(part, ast.Name)
                }
        case _:
            pass


def _imports(module: ast.Module) -> dict[str, str]:
    names = {"torch": "torch"}
    for statement in module.body:
        match statement:
            case ast.Import(names=aliases):
                names |= {alias.asname: alias.name for alias in aliases if alias.asname}
                names |= {first: first for first in (a.name.split(".")[0] for a in aliases if not a.asname)}
            case ast.ImportFrom(module=str() as source, names=aliases):
                names |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in aliases}
            case _:
                pass
    return names


def _init_inputs(module: ast.Module, known: dict[str, Value], workload: str) -> tuple[Value, ...]:
    """Return the arguments of `__init__`; unknown ones as None."""
    known = known | _dimensions(known.get("WORKLOADS"), workload)
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "get_init_inputs":
            for inner in statement.body:
                if isinstance(inner, ast.Return) and isinstance(inner.value, ast.List | ast.Tuple):
                    found: dict[str, Value] = {}
                    for index, element in enumerate(inner.value.elts):
                        _keep(found, str(index), element, known)
                    return tuple(found.get(str(index)) for index in range(len(inner.value.elts)))
    return ()


def _dimensions(workloads: Value, name: str) -> dict[str, Value]:
    """Return what a workload gives to the problem's functions."""
    if not isinstance(workloads, dict) or not workloads:
        return {}
    found = workloads.get(name, next(iter(workloads.values())))
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _read_init(init: ast.FunctionDef, given: tuple[Value, ...], named: dict[str, Value], constants: Constants) -> None:
    local = dict(constants.globals)
    arguments = init.args.args[1:]
    first_default = len(arguments) - len(init.args.defaults)
    for argument, default in zip(arguments[first_default:], init.args.defaults, strict=True):
        _keep(local, argument.arg, default, constants.globals)
    local |= {argument.arg: value for argument, value in zip(arguments, given, strict=False)} | named
    for statement in init.body:
        match statement:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                _read_assignment(target, value, local, constants)
            case _:
                pass


def _read_assignment(target: ast.expr, value: ast.expr, local: dict[str, Value], constants: Constants) -> None:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, item in zip(targets, values, strict=True):
                _read_assignment(one, item, local, constants)
        case ast.Attribute(value=ast.Name(id="self"), attr=name), ast.Call() as call:
            _keep_module(name, call, local, constants)
        case ast.Attribute(value=ast.Name(id="self"), attr=name), _:
            _keep_attribute(name, value, local, constants)
        case _:
            _bind(local, target, value, local)


def _keep_attribute(name: str, value: ast.expr, local: dict[str, Value], constants: Constants) -> None:
    _keep(constants.attributes, name, value, local)
    if name in constants.attributes:
        local[f"self.{name}"] = constants.attributes[name]


def _keep_module(name: str, call: ast.Call, local: dict[str, Value], constants: Constants) -> None:
    """Note a module, or the constant that a call such as `math.sqrt(8)` gives."""
    made = constants.full_name(ast.unparse(call.func))
    if made in constants.classes:
        positional, named = _arguments(call, local)
        constants.modules[name] = _of_class(made, tuple(positional), named, constants)
    elif made == "torch.nn.Sequential":
        for number, argument in enumerate(call.args):
            if isinstance(argument, ast.Call):
                _keep_module(f"{name}.{number}", argument, local, constants)
        constants.modules[name] = ("Sequential", [None] * len(call.args), {})
    elif made.startswith("torch.nn."):
        constants.modules[name] = (made.removeprefix("torch.nn."), *_arguments(call, local))
    else:
        _keep_attribute(name, call, local, constants)


def _arguments(call: ast.Call, local: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """Return the arguments of a call; positional ones that are not known are None."""
    found: dict[str, Value] = {}
    for index, argument in enumerate(call.args):
        _keep(found, str(index), argument, local)
    for keyword in call.keywords:
        _keep(found, keyword.arg or "", keyword.value, local)
    return [found.pop(str(index), None) for index in range(len(call.args))], found


ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.Pow: ("pow", operator.pow),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod),
    ast.MatMult: ("matmul", operator.mul),
    ast.BitAnd: ("logical_and", lambda left, right: int(left) & int(right)),
    ast.BitOr: ("logical_or", lambda left, right: int(left) | int(right)),
}
"""Name of the rule, and what Python computes."""
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Value, Value], bool]]] = {
    ast.Gt: ("gt", lambda left, right: _plain_number(left) > _plain_number(right)),
    ast.GtE: ("ge", lambda left, right: _plain_number(left) >= _plain_number(right)),
    ast.Lt: ("lt", lambda left, right: _plain_number(left) < _plain_number(right)),
    ast.LtE: ("le", lambda left, right: _plain_number(left) <= _plain_number(right)),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Is: ("", operator.is_),
    ast.IsNot: ("", operator.is_not),
}
"""Name of the rule, empty if there is none; and what Python computes."""


def _plain_number(value: Value) -> float:
    if not isinstance(value, int | float):
        raise NoRuleError(f"{value!r} in a comparison")
    return value


def plain_call(name: str, args: list[Value]) -> Value:
    """Return what a function of Python gives for numbers; None if it is none of those known."""
    match name, args:
        case "float", [int() | float() | str() as value]:
            return float(value)
        case "int", [int() | float() as value]:
            return int(value)
        case "math.sqrt", [int() | float() as value]:
            return math.sqrt(value)
        case "len", [tuple() as value]:
            return len(value)
        case _:
            return None


MODULES: dict[str, tuple[str, str]] = {
    "ReLU": ("relu", "inplace"),
    "Sigmoid": ("sigmoid", ""),
    "Tanh": ("tanh", ""),
    "SiLU": ("silu", "inplace"),
    "GELU": ("gelu", "approximate"),
    "ELU": ("elu", "alpha inplace"),
    "SELU": ("selu", "inplace"),
    "LeakyReLU": ("leaky_relu", "negative_slope inplace"),
    "Hardtanh": ("hardtanh", "min max inplace"),
    "ReLU6": ("relu6", ""),
    "Softplus": ("softplus", "beta threshold"),
    "Mish": ("mish", "inplace"),
    "Softsign": ("softsign", ""),
    "Hardsigmoid": ("hardsigmoid", "inplace"),
    "Hardswish": ("hardswish", "inplace"),
    "Softmax": ("softmax", "dim"),
    "LogSoftmax": ("log_softmax", "dim"),
    "LayerNorm": ("layer_norm", "normalized_shape eps"),
    "RMSNorm": ("rms_norm", "normalized_shape eps"),
    "Linear": ("linear", ""),
    "Identity": ("contiguous", ""),
    "Flatten": ("flatten", "start_dim end_dim"),
}
"""By class: the rule that a module applies, and the names of its own arguments in order."""


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


_FLAT_COLUMNS = 16_384
"""Longest row into which a program without reductions is cut."""


def read_program(source: str, tensors: tuple[TensorInfo, ...], workload: str = "") -> AnyProgram:
    """Return what the reference computes.

    Args:
        source: the problem file.
        tensors: inputs in call order, then parameters, then outputs.
        workload: which one of several they are of.

    Raises:
        NoRuleError: it holds something that the rules do not cover, or is no Python.
    """
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise NoRuleError(f"a reference that is no Python (line {error.lineno}: {error.msg})") from error
    constants = read_constants(module, workload)
    return _rows(constants, tensors) or _staged(constants, tensors)


def _rows(constants: Constants, tensors: tuple[TensorInfo, ...]) -> Program | None:
    """Return a program of rows and columns; None if it is none."""
    full: Shape = ()
    try:
        for tensor in tensors:
            if tensor.role != "output":
                full = broadcast(full, tensor.shape)
    except NoRuleError:
        return None
    for trailing in range(1, len(full) + 1):
        tracer = RowTracer(full, trailing)
        try:
            return _finished(tracer, _results(tracer, constants, tensors), tensors)
        except NoRuleError:
            continue
    return None


def _staged(constants: Constants, tensors: tuple[TensorInfo, ...]) -> Staged:
    for tensor in tensors:
        if tensor.role == "output" and tensor.dtype not in FLOATING | {"bool"}:
            raise NoRuleError(f"results of dtype {tensor.dtype}: all arithmetic is floating-point")
    tracer = StagedTracer()
    results = _results(tracer, constants, tensors)
    return lowered(tracer.nodes, [tracer.tensor(result) for result in results], tensors)


def _results(tracer: Tracer, constants: Constants, tensors: tuple[TensorInfo, ...]) -> tuple[Traced, ...]:
    """Go through `forward` and return what it returns.

    Raises:
        NoRuleError: something has no rule, or the results are not those that the task lists.
    """
    inputs = tuple(tensor for tensor in tensors if tensor.role == "input")
    arguments = constants.forward.args
    names = [argument.arg for argument in arguments.args[1:]]
    if len(names) < len(inputs):
        raise NoRuleError(f"`forward` with the arguments {names} for {len(inputs)} inputs")
    walk = Walk(tracer, constants, {tensor.name: tensor for tensor in tensors if tensor.role == "parameter"})
    for name, default in zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True):
        walk.values[name] = walk.evaluate(default)
    is_named = all(tensor.name in names for tensor in inputs)  # numbers may stand among them
    for name, tensor in zip(names, inputs, strict=False):
        walk.values[tensor.name if is_named else name] = tracer.load(tensor)
    result = walk.run(constants.forward.body)
    results: tuple[Value, ...] = result if isinstance(result, tuple) else (result,)
    found = tuple(tracer.tensor(value) for value in results)
    expected = tuple(tensor.shape for tensor in tensors if tensor.role == "output")
    if tuple(value.shape for value in found) != expected:
        raise NoRuleError(f"results of shapes {[value.shape for value in found]}, expected {list(expected)}")
    return found


def _finished(tracer: RowTracer, outputs: tuple[Traced, ...], tensors: tuple[TensorInfo, ...]) -> Program:
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
