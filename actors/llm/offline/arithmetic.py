"""What Python computes with numbers, and the names of the same operations on tensors."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

from actors.llm.offline.graph import NoRuleError
from actors.llm.offline.tracing import Value

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
    ast.Gt: ("gt", lambda left, right: _number(left) > _number(right)),
    ast.GtE: ("ge", lambda left, right: _number(left) >= _number(right)),
    ast.Lt: ("lt", lambda left, right: _number(left) < _number(right)),
    ast.LtE: ("le", lambda left, right: _number(left) <= _number(right)),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Is: ("", operator.is_),
    ast.IsNot: ("", operator.is_not),
}
"""Name of the rule, empty if there is none; and what Python computes."""


def _number(value: Value) -> float:
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
