"""Constraints of a definition: expressions of Python over axes and inputs, evaluated without running them as Python.

`len_indptr == batch_size + 1`, `num_kv_indices == kv_indptr[-1].item()`, `topk <= max_num_pages * page_size`,
`gemm1_weights.shape[1] == 2 * intermediate_size`. What is understood: numbers, comparisons, `and`, `or`, `not`,
`+ - * // %`, `min`, `max`, an axis by name, `INPUT.shape[i]`, and of an input whose contents are known
`INPUT[i]` and `INPUT[i].item()`. Nothing else: no attribute, call or name beyond these exists here.

- `holds(constraint: str, known: Mapping[str, Known]) -> bool`, raises ConfigError, Unknown
- `last_value_of(constraint: str) -> tuple[str, str] | None`: axis and input of `AXIS == INPUT[-1].item()`
- `said_axis(constraint: str, known) -> tuple[str, int] | None`: what an equation says of an axis that is not known
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from messages.base import ConfigError

_MOST = 1 << 62
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


class KnownTensor(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an input."""

    shape: tuple[int, ...]
    values: tuple[int, ...] | None = None
    """Contents of an integer input of one dimension; null: they are drawn for each call."""


Known: TypeAlias = int | KnownTensor
_Value: TypeAlias = bool | int | tuple[int, ...] | KnownTensor


class Unknown(Exception):  # noqa: N818 - no error: the question is open
    """The truth of a constraint hangs on an axis or on contents that are not known; the text is its name."""


def holds(constraint: str, known: Mapping[str, Known]) -> bool:
    """Say whether a constraint holds.

    Raises:
        ConfigError: it is no expression of the kind that is understood.
        Unknown: a name in it is not known, or the contents of an input.
    """
    value = _value(_parsed(constraint), known, constraint)
    if isinstance(value, KnownTensor | tuple):
        raise ConfigError(f"constraint {constraint!r} is neither true nor false")
    return bool(value)


def last_value_of(constraint: str) -> tuple[str, str] | None:
    """Return axis and input of a constraint of the form `AXIS == INPUT[-1].item()`, either way round."""
    match _parsed(constraint):
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ast.Name) and (name := _last_of(other)):
                    return one.id, name
    return None


def said_axis(constraint: str, known: Mapping[str, Known]) -> tuple[str, int] | None:
    """Return what an equation `AXIS == EXPRESSION` says of an axis that is not known; none if it says nothing."""
    match _parsed(constraint):
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[right]) if name not in known:
            try:
                value = _value(right, known, constraint)
            except Unknown:
                return None
            return (name, value) if isinstance(value, int) else None
    return None


def _parsed(constraint: str) -> ast.expr:
    try:
        return ast.parse(constraint, mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ConfigError(f"constraint {constraint!r} is no expression of Python: {error}") from error


def _last_of(node: ast.expr) -> str:
    """Return the name in `NAME[-1]` or `NAME[-1].item()`; else nothing."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
            return _last_of(inner)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            return name
    return ""


def _value(node: ast.expr, known: Mapping[str, Known], shown: str) -> _Value:
    match node:
        case ast.Constant(value=bool() | int() as number):
            return number
        case ast.Name(id=name):
            if name not in known:
                raise Unknown(name)
            return known[name]
        case ast.Attribute(value=inner, attr="shape"):
            return _tensor(inner, known, shown).shape
        case ast.Subscript(value=inner, slice=index):
            return _item(_value(inner, known, shown), _number(index, known, shown), shown)
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
            return _number(inner, known, shown)
        case _:
            return _compound(node, known, shown)


def _compound(node: ast.expr, known: Mapping[str, Known], shown: str) -> bool | int:
    match node:
        case ast.BoolOp(op=op, values=parts):
            values = [_number(part, known, shown) for part in parts]
            return all(values) if isinstance(op, ast.And) else any(values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=inner):
            number = _number(inner, known, shown)
            return -number if isinstance(op, ast.USub) else not number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _result(_OPERATORS[type(op)], _number(left, known, shown), _number(right, known, shown), shown)
        case ast.Compare(left=left, ops=ops, comparators=others) if {*map(type, ops)} <= _COMPARISONS.keys():
            values = [_number(part, known, shown) for part in (left, *others)]
            pairs = zip(values, ops, values[1:], strict=False)
            return all(_COMPARISONS[type(op)](one, other) for one, op, other in pairs)
        case ast.Call(func=ast.Name(id=name), args=[*given], keywords=[]) if name in _FUNCTIONS and given:
            return _FUNCTIONS[name]([_number(part, known, shown) for part in given])
    raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is not understood")


def _result(function: Callable[[int, int], int], left: int, right: int, shown: str) -> int:
    try:
        value = function(left, right)
    except ZeroDivisionError as error:
        raise ConfigError(f"constraint {shown!r} divides by zero") from error
    if abs(value) > _MOST:
        raise ConfigError(f"constraint {shown!r} leaves the range of 64-bit integers")
    return value


def _number(node: ast.expr, known: Mapping[str, Known], shown: str) -> int:
    value = _value(node, known, shown)
    if isinstance(value, KnownTensor | tuple):
        raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is no number")
    return int(value)


def _tensor(node: ast.expr, known: Mapping[str, Known], shown: str) -> KnownTensor:
    value = _value(node, known, shown)
    if not isinstance(value, KnownTensor):
        raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is no tensor")
    return value


def _item(value: _Value, index: int, shown: str) -> int:
    if isinstance(value, KnownTensor):
        if value.values is None:
            raise Unknown(shown)
        value = value.values
    if not isinstance(value, tuple) or not -len(value) <= index < len(value):
        raise ConfigError(f"constraint {shown!r} looks at an element that is not there")
    return value[index]
