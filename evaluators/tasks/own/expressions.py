"""Expressions over a workload's dimensions, as they stand in shapes and distributions: `"2 * rows"`, `"rows // 4"`.

- `parse(text: str, where: str) -> ast.expr`, raises ConfigError
- `names_in(expression) -> names`
- `evaluate(expression, dimensions, where) -> number`, raises ConfigError
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from messages.base import ConfigError
from messages.tasks import Dimension

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
    """Return an expression, in which everything is understood.

    Raises:
        ConfigError: something is not.
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
        ConfigError: a dimension is missing or no number, or something is divided by zero.
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
