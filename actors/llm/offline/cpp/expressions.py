"""Nodes of the graph as C++ expressions over the names of their operands."""

from __future__ import annotations

import math

from actors.llm.offline.graph import Node, Program, TensorInfo
from actors.llm.offline.plan import Plan

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
"""A bool is read as the byte that it is: compilers do not vectorise conversions from C++'s bool."""

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
"""Cheaper where loops are vectorised; as accurate as torch's own, which has 1 + erf as well."""
_ELEMENTARY = ("EXPM1", "EXP", "LOG1P", "LOG", "TANH", "ERFC", "ERF")
_IDENTITIES = {"sum": "0", "max": "-INFINITY", "min": "INFINITY"}


class Writer:
    """Writes expressions for one program by one plan."""

    def __init__(self, program: Program, plan: Plan) -> None:
        self.program = program
        self._tensors = {tensor.name: tensor for tensor in program.tensors if tensor.role != "output"}
        wide = any(tensor.dtype == "float64" for tensor in program.tensors)
        self.real = "double" if wide else "float"
        self._lanes = plan.vectorise and not plan.exact and not wide
        self.accumulator = "double" if plan.wide or not plan.vectorise else self.real

    def operation(self, node: Node, operands: list[str]) -> str:
        """Return an element-wise operation applied to named values."""
        if self._lanes and node.op in _LANE_OPERATIONS:
            return self._elementary(_LANE_OPERATIONS[node.op].format(*operands))
        return self._elementary(_OPERATIONS[node.op].format(*operands))

    def constant(self, node: Node) -> str:
        """Return a constant of the compute type."""
        if math.isnan(node.value):
            return "NAN"
        if math.isinf(node.value):
            return "INFINITY" if node.value > 0 else "-INFINITY"
        return f"{self.real}({node.value!r})"

    def loaded(self, node: Node, index: str) -> str:
        """Return a tensor's element in the compute type."""
        tensor = self._tensors[node.name]
        return self.widened(tensor.dtype, f"{identifier(tensor)}[{index}]")

    def widened(self, dtype: str, element: str) -> str:
        """Return an element in the compute type."""
        if dtype == "bfloat16":
            return f"from_bfloat16({element})"
        return element if C_TYPES[dtype] == self.real else f"static_cast<{self.real}>({element})"

    def stored(self, tensor: TensorInfo, value: str) -> str:
        """Return a value in the type of an output's elements."""
        if tensor.dtype == "bfloat16":
            return f"to_bfloat16({value})"
        return value if C_TYPES[tensor.dtype] == self.real else f"static_cast<{C_TYPES[tensor.dtype]}>({value})"

    def start(self, op: str) -> str:
        """Return what a reduction starts from."""
        return f"{self._reduced_type(op)}({_IDENTITIES[op]})"

    def accumulated(self, op: str, name: str, value: str) -> str:
        """Return the statement that takes `value` into a reduction."""
        if op == "sum":
            return f"{name} += {value};"
        return f"{name} = {name} {'<' if op == 'max' else '>'} {value} ? {value} : {name};"

    def combined(self, op: str, names: list[str]) -> str:
        """Return partial results of a reduction as one value of the compute type."""
        text = names[0]
        for name in names[1:]:
            text = f"{text} + {name}" if op == "sum" else f"std::{op}({text}, {name})"
        return f"static_cast<{self.real}>({text})"

    def _reduced_type(self, op: str) -> str:
        return self.accumulator if op == "sum" else self.real

    def _elementary(self, text: str) -> str:
        for name in _ELEMENTARY:
            lower = name.lower()
            text = text.replace(f"{name}(", f"{lower}_lane(" if self._lanes else f"std::{lower}(")
        return text


def identifier(tensor: TensorInfo) -> str:
    """Return a C++ name for a tensor; the prefix keeps it apart from all other names."""
    prefix = "o" if tensor.role == "output" else "t"
    return f"{prefix}_{''.join(letter if letter.isalnum() else '_' for letter in tensor.name)}"
