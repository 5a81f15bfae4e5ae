"""Nodes of the graph as C++ expressions over the names of their operands."""

from __future__ import annotations

import math
from collections.abc import Iterable

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages import Node, Program, TensorInfo

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "_Float16",
    "bfloat16": "uint16_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}
"""A bool is read as a byte: compilers do not vectorise conversions from C++'s bool."""

_OPERATIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "std::fabs({0})",
    "relu": "({0} < zero ? zero : {0})",
    "maximum": "({0} < {1} ? {1} : {0})",
    "minimum": "({1} < {0} ? {1} : {0})",
    "sqrt": "std::sqrt({0})",
    "rsqrt": "one / std::sqrt({0})",
    "pow": "std::pow({0}, {1})",
    "exp": "EXP({0})",
    "expm1": "EXPM1({0})",
    "log": "LOG({0})",
    "log1p": "LOG1P({0})",
    "tanh": "TANH({0})",
    "erf": "ERF({0})",
    "gt": "({0} > {1} ? one : zero)",
    "ge": "({0} >= {1} ? one : zero)",
    "lt": "({0} < {1} ? one : zero)",
    "le": "({0} <= {1} ? one : zero)",
    "eq": "({0} == {1} ? one : zero)",
    "ne": "({0} != {1} ? one : zero)",
    "logical_and": "({0} != zero && {1} != zero ? one : zero)",
    "logical_or": "({0} != zero || {1} != zero ? one : zero)",
    "where": "({0} != zero ? {1} : {2})",
    "floor_divide": "std::floor({0} / {1})",
    "remainder": "({0} - std::floor({0} / {1}) * {1})",
    "sigmoid": "one / (one + EXP(-{0}))",
    "silu": "{0} / (one + EXP(-{0}))",
    "gelu_erf": "half * {0} * ERFC({0} * minus_root_half)",
}
_LANE_OPERATIONS = {"gelu_erf": "half * {0} * (one + ERF({0} * -minus_root_half))"}
"""Cheaper in vectorised loops, and as accurate as torch's own, which computes 1 + erf as well."""
_ELEMENTARY = ("EXPM1", "EXP", "LOG1P", "LOG", "TANH", "ERFC", "ERF")
_IDENTITIES = {"sum": "0", "max": "-INFINITY", "min": "INFINITY"}


class Writer:
    """Writes expressions for one program by one plan."""

    def __init__(self, program: Program, plan: Plan) -> None:
        is_double = program.real == "float64"
        self.real = "double" if is_double else "float"
        self._lanes = plan.vectorise and not plan.exact and not is_double
        self.accumulator = "double" if plan.wide or not plan.vectorise else self.real

    def operation(self, node: Node, operands: list[str]) -> str:
        """Return an element-wise operation applied to named values."""
        text = _LANE_OPERATIONS[node.op] if self._lanes and node.op in _LANE_OPERATIONS else _OPERATIONS[node.op]
        text = text.format(*operands)
        for name in _ELEMENTARY:
            lower = name.lower()
            text = text.replace(f"{name}(", f"{lower}_lane(" if self._lanes else f"std::{lower}(")
        return text

    def constant(self, value: float) -> str:
        """Return a constant of the compute type."""
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{self.real}({value!r})"

    def widened(self, dtype: str, element: str) -> str:
        """Return an element of a tensor in the compute type."""
        if dtype == "bfloat16":
            return f"from_bfloat16({element})"
        return element if C_TYPES[dtype] == self.real else f"static_cast<{self.real}>({element})"

    def stored(self, dtype: str, value: str) -> str:
        """Return a value in the type of a tensor's elements."""
        if dtype == "bfloat16":
            return f"to_bfloat16({value})"
        return value if C_TYPES[dtype] == self.real else f"static_cast<{C_TYPES[dtype]}>({value})"

    def start(self, op: str, name: str) -> str:
        """Return the statement that begins a reduction."""
        kind = self.accumulator if op == "sum" else self.real
        return f"{kind} {name} = {_IDENTITIES[op]};"

    def accumulated(self, op: str, name: str, value: str) -> str:
        """Return the statement that adds `value` to a reduction."""
        if op == "sum":
            return f"{name} += {value};"
        return f"{name} = {name} {'<' if op == 'max' else '>'} {value} ? {value} : {name};"


def identifier(tensor: TensorInfo) -> str:
    """Return a C++ name for a tensor; its prefix keeps it distinct from all other names."""
    prefix = {"output": "o", "value": "value"}.get(tensor.role, "t")
    return f"{prefix}_{''.join(letter if letter.isalnum() else '_' for letter in tensor.name.lstrip('%'))}"


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" if line else line for line in lines]
