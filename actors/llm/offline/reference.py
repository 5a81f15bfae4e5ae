"""Reads a reference: Python walked by its syntax tree, with tensors in place of values that only torch could compute.

Nothing of it is run. Covered: assignments, arithmetic, comparisons, indexing, attributes and modules set in `__init__`,
methods, functions and classes of the file, conditions known beforehand, and the operations of `tensors.py`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from actors.llm.offline.lowering import lowered
from actors.llm.offline.stages import NoRuleError, Program, TensorInfo
from actors.llm.offline.tensors import FLOATING, Graph, Item, Tensor, Value, called, power

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
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
"""By operator: torch's name, and Python's function."""
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
}
_NUMBER = (int, float, str)
_PYTHON: dict[str, tuple[tuple[type, ...], Callable[..., Value]]] = {
    "float": (_NUMBER, float),
    "int": (_NUMBER, int),
    "bool": (_NUMBER, bool),
    "math.sqrt": ((int, float), math.sqrt),
    "len": ((tuple,), len),
}
"""Functions of Python: the types of the argument for which they are supported, and the function."""
_CONSTANTS: dict[str, float] = {"torch.pi": math.pi, "math.pi": math.pi, "math.inf": math.inf, "torch.inf": math.inf}
_FLOAT32_MAX = 3.4028234663852886e38
_MODULES: dict[str, tuple[str, str]] = {
    "ReLU": ("relu", ""),
    "Sigmoid": ("sigmoid", ""),
    "Tanh": ("tanh", ""),
    "SiLU": ("silu", ""),
    "GELU": ("gelu", "approximate"),
    "ELU": ("elu", "alpha"),
    "SELU": ("selu", ""),
    "LeakyReLU": ("leaky_relu", "negative_slope"),
    "Hardtanh": ("hardtanh", "min max"),
    "ReLU6": ("relu6", ""),
    "Softplus": ("softplus", "beta threshold"),
    "Mish": ("mish", ""),
    "Softsign": ("softsign", ""),
    "Hardsigmoid": ("hardsigmoid", ""),
    "Hardswish": ("hardswish", ""),
    "Softmax": ("softmax", "dim"),
    "LogSoftmax": ("log_softmax", "dim"),
    "LayerNorm": ("layer_norm", "normalized_shape eps"),
    "RMSNorm": ("rms_norm", "normalized_shape eps"),
    "Linear": ("linear", ""),
    "Identity": ("contiguous", ""),
    "Flatten": ("flatten", "start_dim end_dim"),
}
"""By class of torch.nn: the operation, and the names of the module's own arguments in order."""
_TAKE_SIZES = frozenset({"mean", "sum", "amax", "amin", "view", "reshape", "permute", "expand", "ones", "zeros"})
"""Operations that also accept dimensions or sizes as separate arguments."""
_MAX_DEPTH = 8


class _Made(msgspec.Struct, frozen=True):
    """A module of torch.nn: its class and its constructor arguments."""

    kind: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]


class _File(msgspec.Struct, frozen=True):
    """Top-level names of a problem file."""

    functions: dict[str, ast.FunctionDef]
    classes: dict[str, ast.ClassDef]
    namespaces: dict[str, str]
    """Names that imports bind, with their full names."""
    values: dict[str, Value]

    def full_name(self, dotted: str) -> str:
        """Return a dotted name with its first part as imported: `F.silu` is `torch.nn.functional.silu`."""
        first, dot, rest = dotted.partition(".")
        return f"{self.namespaces.get(first, first)}{dot}{rest}"


class _Instance(msgspec.Struct, frozen=True):
    """A module of a class in the file."""

    methods: dict[str, ast.FunctionDef]
    attributes: dict[str, Value]


def read_program(source: str, tensors: tuple[TensorInfo, ...], workload: str = "") -> Program:
    """Return the computation of the reference.

    Args:
        source: the problem file.
        tensors: inputs in call order, then parameters, then outputs.
        workload: the workload that they belong to, if there are several.

    Raises:
        NoRuleError: the rules do not cover a part of it, or it is not Python.
    """
    for tensor in tensors:
        if tensor.role == "output" and tensor.dtype not in FLOATING | {"bool"}:
            raise NoRuleError(f"results of dtype {tensor.dtype}: all arithmetic is floating-point")
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise NoRuleError(f"a reference that is no Python (line {error.lineno}: {error.msg})") from error
    graph = Graph()
    file = _File(
        functions={item.name: item for item in module.body if isinstance(item, ast.FunctionDef)},
        classes={item.name: item for item in module.body if isinstance(item, ast.ClassDef)},
        namespaces=_imports(module),
        values={},
    )
    top = _Walk(graph, file, {}, values=file.values)
    top.run_leniently(module.body)
    if "Model" not in file.classes:
        raise NoRuleError("a reference without `Model.forward`")
    model = top.instance("Model", _init_arguments(top, workload), {})
    results = _results(graph, file, model, tensors)
    return lowered(graph.nodes, results, tensors)


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


def _init_arguments(top: _Walk, workload: str) -> tuple[Value, ...]:
    """Return the values of `get_init_inputs`; an unknown argument is None."""
    function = top.file.functions.get("get_init_inputs")
    if function is None:
        return ()
    workloads = top.file.values.get("WORKLOADS")
    given: Value = None
    if isinstance(workloads, dict) and workloads:
        given = workloads.get(workload, next(iter(workloads.values())))
    walk = _Walk(top.graph, top.file, {}, values={**given} if isinstance(given, dict) else {})
    for statement in function.body:
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.List | ast.Tuple):
            return tuple(walk.known_or_none(part) for part in statement.value.elts)
        walk.run_leniently([statement])
    return ()


def _results(graph: Graph, file: _File, model: _Instance, tensors: tuple[TensorInfo, ...]) -> list[Tensor]:
    """Walk through `forward` and return its results.

    Raises:
        NoRuleError: a part has no rule, or the results are not those that the task lists.
    """
    inputs = [tensor for tensor in tensors if tensor.role == "input"]
    names = [argument.arg for argument in model.methods["forward"].args.args[1:]]
    if len(names) < len(inputs):
        raise NoRuleError(f"`forward` with the arguments {names} for {len(inputs)} inputs")
    is_named = all(tensor.name in names for tensor in inputs)  # numbers may stand among them
    pairs = zip(names, inputs, strict=False)
    given: dict[str, Value] = {tensor.name if is_named else name: graph.load(tensor) for name, tensor in pairs}
    walk = _Walk(graph, file, {tensor.name: tensor for tensor in tensors if tensor.role == "parameter"}, owner=model)
    result = walk.function(model.methods["forward"], [], given, skip=1)
    found = [graph.tensor(value) for value in (result if isinstance(result, tuple) else (result,))]
    expected = [tensor.shape for tensor in tensors if tensor.role == "output"]
    if [value.shape for value in found] != expected:
        raise NoRuleError(f"results of shapes {[value.shape for value in found]}, expected {expected}")
    return found


class _Walk:
    """One body of statements: the file's, `__init__`, `forward`, or a function that one of them calls."""

    def __init__(
        self,
        graph: Graph,
        file: _File,
        parameters: Mapping[str, TensorInfo],
        *,
        owner: _Instance | None = None,
        prefix: str = "",
        values: dict[str, Value] | None = None,
        depth: int = 0,
    ) -> None:
        """Begin.

        Args:
            graph: receives the computation.
            file: the problem's file.
            parameters: parameters of the whole model, by name.
            owner: the module that the method belongs to.
            prefix: prefix of the names of its parameters; empty or ends in a dot.
            values: names that are bound already.
            depth: number of calls above this one.
        """
        self.graph, self.file = graph, file
        self._parameters, self._owner, self._prefix = parameters, owner, prefix
        self._values = {} if values is None else values
        self._depth = depth

    def run_leniently(self, body: list[ast.stmt]) -> None:
        """Walk through statements. A name with an unknown value stays unbound, an error only if it is needed."""
        for statement in body:
            try:
                self._run([statement])
            except NoRuleError:
                for target in statement.targets if isinstance(statement, ast.Assign) else ():
                    self._values.pop(ast.unparse(target), None)

    def known_or_none(self, node: ast.expr) -> Value:
        """Return the value of an expression; None if it is not known."""
        with suppress(NoRuleError):
            return self.evaluate(node)
        return None

    def instance(self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> _Instance:
        """Return a module of one of the file's classes.

        Raises:
            NoRuleError: it has no `forward`.
        """
        methods = {item.name: item for item in self.file.classes[name].body if isinstance(item, ast.FunctionDef)}
        if "forward" not in methods:
            raise NoRuleError(f"a reference without `{name}.forward`")
        made = _Instance(methods, {})
        if "__init__" in methods:
            inner = _Walk(self.graph, self.file, {}, owner=made, depth=self._depth + 1)
            inner.bind(methods["__init__"], args, kwargs, skip=1)
            inner.run_leniently(methods["__init__"].body)
        return made

    def bind(self, function: ast.FunctionDef, args: tuple[Value, ...], kwargs: dict[str, Value], *, skip: int) -> None:
        """Bind the arguments of a call; `skip` leaves out `self`. A default with an unknown value stays unbound."""
        names = [argument.arg for argument in function.args.args[skip:]]
        defaults = function.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            self._values[name] = self.known_or_none(default)
        self._values |= {**dict(zip(names, args, strict=False)), **kwargs}

    def function(
        self,
        function: ast.FunctionDef,
        args: list[Value],
        kwargs: dict[str, Value],
        *,
        skip: int = 0,
        owner: _Instance | None = None,
        prefix: str = "",
    ) -> Value:
        """Walk through a function of the file, or a method of `owner`, and return its result.

        Raises:
            NoRuleError: a part has no rule.
        """
        if self._depth == _MAX_DEPTH:
            raise NoRuleError(f"the recursion of `{function.name}`")
        inner = _Walk(
            self.graph, self.file, self._parameters, owner=owner or self._owner, prefix=f"{self._prefix}{prefix}",
            depth=self._depth + 1,
        )  # fmt: skip
        inner.bind(function, tuple(args), kwargs, skip=skip)
        found = inner._run(function.body)
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
                result = self.evaluate(value)
                for target in targets:
                    self._assign(target, result)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.evaluate(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self._values[name] = self._arithmetic(op, self.evaluate(target), self.evaluate(value))
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case _:
                raise NoRuleError(f"the statement `{ast.unparse(statement).splitlines()[0]}`")

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self._values[name] = value
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self._owner is not None:
                self._owner.attributes[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, tuple) and len(parts) == len(value):
                for part, item in zip(parts, value, strict=True):
                    self._assign(part, item)
            case _:
                raise NoRuleError(f"an assignment to `{ast.unparse(target)}`")

    def _known(self, test: ast.expr) -> bool:
        value = self.evaluate(test)
        if isinstance(value, Tensor):
            raise NoRuleError(f"the condition `{ast.unparse(test)}` on a tensor's contents")
        return bool(value)

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises:
            NoRuleError: a part has no rule.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._parts(parts))
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {self.evaluate(key): self.evaluate(value) for key, value in pairs if key is not None}
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=owner, slice=index):
                return self._item(self.evaluate(owner), index)
            case ast.Call():
                return self._call(node)
            case _:
                return self._operation(node)

    def _operation(self, node: ast.expr) -> Value:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self.evaluate(left), self.evaluate(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.evaluate(operand)
                return -value if isinstance(value, int | float | Tensor) else self._refuse(node)
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                value = self.evaluate(operand)
                return called(self.graph, "logical_not", [value], {}) if isinstance(value, Tensor) else not value
            case ast.IfExp(test=test, body=then, orelse=other):
                return self.evaluate(then if self._known(test) else other)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(node, op, self.evaluate(left), self.evaluate(right))
            case _:
                return self._refuse(node)

    def _refuse(self, node: ast.expr) -> Value:
        raise NoRuleError(f"the expression `{ast.unparse(node)}`")

    def _parts(self, parts: list[ast.expr]) -> list[Value]:
        """Return the values of a list of expressions, with starred ones unpacked."""
        found: list[Value] = []
        for part in parts:
            value = self.evaluate(part.value if isinstance(part, ast.Starred) else part)
            if isinstance(part, ast.Starred) and not isinstance(value, tuple):
                raise NoRuleError(f"the argument `{ast.unparse(part)}`")
            found += value if isinstance(part, ast.Starred) and isinstance(value, tuple) else [value]
        return found

    def _compared(self, node: ast.expr, op: ast.cmpop, left: Value, right: Value) -> Value:
        if isinstance(op, ast.Is | ast.IsNot):
            return (left is right) == isinstance(op, ast.Is)
        name, compute = _COMPARISONS.get(type(op), ("", operator.eq))
        if name and (isinstance(left, Tensor) or isinstance(right, Tensor)):
            return self.graph.apply(name, left, right)
        if name in {"eq", "ne"}:
            return (left == right) == (name == "eq")
        if not name or not isinstance(left, int | float) or not isinstance(right, int | float):
            return self._refuse(node)
        return compute(left, right)

    def _name(self, name: str) -> Value:
        for values in (self._values, self.file.values):
            if name in values:
                return values[name]
        if name in {"float", "int", "bool"}:
            return name  # a dtype
        raise NoRuleError("a method or module that `__init__` does not set" if name == "self" else f"the name `{name}`")

    def _arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        if type(op) not in _ARITHMETIC:
            raise NoRuleError(f"the operator `{type(op).__name__}`")
        name, compute = _ARITHMETIC[type(op)]
        if isinstance(left, int | float) and isinstance(right, int | float):
            return compute(left, right)
        if isinstance(left, tuple) and isinstance(right, tuple) and name == "add":
            return (*left, *right)
        if name == "pow":
            return power(self.graph.tensor(left), right)
        return called(self.graph, name, [left, right], {})

    def _attribute(self, node: ast.Attribute) -> Value:
        text = ast.unparse(node)
        if text.startswith("self."):
            return self._own(text.removeprefix("self."))
        if re.fullmatch(r"torch\.finfo\(.*\)\.(min|max)", text):
            return -_FLOAT32_MAX if node.attr == "min" else _FLOAT32_MAX
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if re.fullmatch(r"torch\.\w+", text):
            return text  # a dtype
        return self._attribute_of(self.evaluate(node.value), node.attr, text)

    def _attribute_of(self, value: Value, name: str, text: str) -> Value:
        if name == "values" and isinstance(value, tuple):
            return value[0]
        if isinstance(value, Tensor):
            match name:
                case "shape":
                    return value.shape
                case "ndim":
                    return len(value.shape)
                case "T" | "mT":
                    return called(self.graph, "transpose", [value, -2, -1], {})
                case "dtype" | "device":
                    return name
                case _:
                    pass
        raise NoRuleError(f"the attribute `{text}`")

    def _own(self, path: str) -> Value:
        """Return a parameter, an attribute or a submodule of the method's module."""
        full = f"{self._prefix}{path}"
        if full in self._parameters:
            return self.graph.load(self._parameters[full])
        value: Value = self._owner
        for name in path.split("."):
            if isinstance(value, _Made) and name == "bias":
                return None
            if not isinstance(value, _Instance) or name not in value.attributes:
                raise NoRuleError(f"the attribute `self.{path}`, which `__init__` does not set")
            value = value.attributes[name]
        return value

    def _item(self, value: Value, index: ast.expr) -> Value:
        if isinstance(value, Tensor):
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return value.indexed([self._bracket(part) for part in parts])
        position = self._bracket(index) if isinstance(index, ast.Slice) else self.evaluate(index)
        if isinstance(value, dict) and position in value:
            return value[position]
        if isinstance(value, tuple) and isinstance(position, tuple):
            return value[slice(*position)]
        if isinstance(value, tuple) and isinstance(position, int) and -len(value) <= position < len(value):
            return value[position]
        raise NoRuleError(f"the index `[{ast.unparse(index)}]`")

    def _bracket(self, part: ast.expr) -> Item:
        """Return the brackets of an index as an `Item`."""
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
        name = ast.unparse(node.func)
        full = self.file.full_name(name)
        if full in self.file.classes or (full.startswith("torch.nn.") and full.rsplit(".", 1)[-1][0].isupper()):
            return self._module(full, node)
        args = self._parts(node.args)
        kwargs = {keyword.arg: self.evaluate(keyword.value) for keyword in node.keywords if keyword.arg}
        if name.startswith("self.") and self._owner is not None:
            method = name.removeprefix("self.")
            if method in self._owner.methods:
                return self.function(self._owner.methods[method], args, kwargs, skip=1)
            module = self.known_or_none(node.func)
            if isinstance(module, _Made | _Instance):
                return self._applied(module, method, args, kwargs)
        if name in self.file.functions:
            return self.function(self.file.functions[name], args, kwargs)
        if len(args) == 1 and name in _PYTHON and isinstance(args[0], _PYTHON[name][0]):
            return _PYTHON[name][1](args[0])
        if isinstance(node.func, ast.Attribute) and _root(node.func) not in self.file.namespaces:
            return self._method(self.evaluate(node.func.value), node.func.attr, args, kwargs)
        return called(self.graph, full, self._sizes(full.rsplit(".", 1)[-1], args, 0), kwargs)

    def _module(self, name: str, call: ast.Call) -> Value:
        """Return a module made by a call. An unknown argument is an error only if it is needed."""
        args = tuple(self.known_or_none(argument) for argument in call.args)
        pairs = {keyword.arg: self.known_or_none(keyword.value) for keyword in call.keywords if keyword.arg}
        kwargs = {key: value for key, value in pairs.items() if value is not None}
        if name in self.file.classes:
            return self.instance(name, args, kwargs)
        return _Made(name.rsplit(".", 1)[-1], args, kwargs)

    def _method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(owner, Tensor):
            match name:
                case "size":
                    return owner.shape[args[0]] if args and isinstance(args[0], int) else owner.shape
                case "dim" | "ndimension":
                    return len(owner.shape)
                case "numel":
                    return math.prod(owner.shape)
                case _:
                    pass
        return called(self.graph, name, self._sizes(name, [owner, *args], 1), kwargs)

    def _sizes(self, name: str, args: list[Value], first: int) -> list[Value]:
        """Return arguments in which sizes given separately form a tuple."""
        rest = args[first:]
        is_several = len(rest) > 1 and all(isinstance(item, int) and not isinstance(item, bool) for item in rest)
        return [*args[:first], tuple(rest)] if name in _TAKE_SIZES and is_several else args

    def _applied(self, module: _Made | _Instance, path: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Apply a module. Its parameters are those that the task lists under its name."""
        if isinstance(module, _Instance):
            forward = module.methods["forward"]
            return self.function(forward, args, kwargs, skip=1, owner=module, prefix=f"{path}.")
        if module.kind == "Sequential":
            value = args[0]
            for number, inner in enumerate(module.args):
                if not isinstance(inner, _Made | _Instance):
                    raise NoRuleError(f"the module `{path}.{number}`")
                value = self._applied(inner, f"{path}.{number}", [value], {})
            return value
        if module.kind not in _MODULES:
            raise NoRuleError(f"the module `{module.kind}`")
        rule, names = _MODULES[module.kind]
        own = {**dict(zip(names.split(), module.args, strict=False)), **module.kwargs}
        given = {name: value for name, value in own.items() if name in names.split()}
        for parameter in ("weight", "bias"):
            if f"{self._prefix}{path}.{parameter}" in self._parameters:
                given[parameter] = self.graph.load(self._parameters[f"{self._prefix}{path}.{parameter}"])
        return called(self.graph, rule, args, {**given, **kwargs})


def _root(function: ast.expr) -> str:
    """Return the first name of a dotted one; empty for a method of an expression, as in `f(x).mean()`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
