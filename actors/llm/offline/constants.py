"""What a reference says outside `forward`: constants of the module, `get_init_inputs`, and what `__init__` sets."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from actors.llm.offline.graph import NoRuleError
from actors.llm.offline.tracing import Value

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
