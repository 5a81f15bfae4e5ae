"""Nodes as Triton expressions over the names of their operands, and the functions that they need.

Everything here is accepted both by the compiler and by Triton's interpreter: no libdevice, which the interpreter does
not know. Polynomials of tanh are those of the Cephes library (Moshier, single precision: tanhf); expm1 near 0 is its
Taylor series to the eighth power, with a remainder at 0.5 below a float's last place; log1p is log(w) x / (w - 1) with
w = 1 + x, which cancels the rounding of w (Kahan).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages import Node, NoRuleError, TensorInfo

TYPES = {
    "float32": "tl.float32",
    "float64": "tl.float64",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}
DOUBLE = "tl.float64"

_IDENTITIES = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


_TANH = """\
@triton.jit
def tanh_lane(x):
    z = x * x
    p = -5.70498872745e-3
    p = p * z + 2.06390887954e-2
    p = p * z - 5.37397155531e-2
    p = p * z + 1.33314422036e-1
    p = p * z - 3.33332819422e-1
    p = p * z * x + x
    magnitude = tl.abs(x)
    large = 1.0 - 2.0 / (tl.exp(2.0 * magnitude) + 1.0)
    return tl.where(magnitude < 0.625, p, tl.where(x < 0.0, -large, large))"""

_EXPM1 = """\
@triton.jit
def expm1_lane(x):
    p = 1.0 / 40320.0
    p = p * x + 1.0 / 5040.0
    p = p * x + 1.0 / 720.0
    p = p * x + 1.0 / 120.0
    p = p * x + 1.0 / 24.0
    p = p * x + 1.0 / 6.0
    p = p * x + 0.5
    p = p * x * x + x
    return tl.where(tl.abs(x) < 0.5, p, tl.exp(x) - 1.0)"""

_LOG1P = """\
@triton.jit
def log1p_lane(x):
    w = 1.0 + x
    d = w - 1.0
    small = d == 0.0
    return tl.where(small, x, tl.log(w) * (x / tl.where(small, 1.0, d)))"""

_FUNCTIONS = {"tanh_lane": _TANH, "expm1_lane": _EXPM1, "log1p_lane": _LOG1P}


def needed_functions(text: str) -> list[str]:
    """Return the definitions that `text` needs."""
    return [code for name, code in _FUNCTIONS.items() if f"{name}(" in text]


class Arithmetic:
    """Divisions, roots and elementary functions: fast, or as exact as the hardware provides."""

    def __init__(self, real: str, *, exact: bool) -> None:
        self.real = real
        self._exact = exact

    def div(self, over: str, by: str) -> str:
        """Return a quotient."""
        return f"tl.div_rn({over}, {by})" if self._exact else f"{over} / ({by})"

    def sqrt(self, x: str) -> str:
        """Return a square root."""
        return f"tl.sqrt_rn({x})" if self._exact else f"tl.sqrt({x})"

    def rsqrt(self, x: str) -> str:
        """Return the reciprocal of a square root."""
        return f"tl.div_rn(1.0, tl.sqrt_rn({x}))" if self._exact else f"tl.rsqrt({x})"

    def call(self, function: str, x: str) -> str:
        """Return an elementary function; the exact form uses double precision."""
        return f"{function}(({x}).to({DOUBLE})).to({self.real})" if self._exact else f"{function}({x})"


_Operation = Callable[..., str]
_COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def _comparison(sign: str) -> _Operation:
    return lambda _, a, b: f"tl.where({a} {sign} {b}, 1.0, 0.0)"


_OPERATIONS: dict[str, _Operation] = {
    "add": lambda _, a, b: f"{a} + {b}",
    "sub": lambda _, a, b: f"{a} - {b}",
    "mul": lambda _, a, b: f"{a} * {b}",
    "div": lambda by, a, b: by.div(a, b),
    "neg": lambda _, a: f"-{a}",
    "abs": lambda _, a: f"tl.abs({a})",
    "relu": lambda _, a: f"tl.where({a} < 0.0, 0.0, {a})",
    "maximum": lambda _, a, b: f"tl.where({a} < {b}, {b}, {a})",
    "minimum": lambda _, a, b: f"tl.where({b} < {a}, {b}, {a})",
    "where": lambda _, a, b, c: f"tl.where({a} != 0.0, {b}, {c})",
    **{op: _comparison(sign) for op, sign in _COMPARISONS.items()},
    "logical_and": lambda _, a, b: f"tl.where(({a} != 0.0) & ({b} != 0.0), 1.0, 0.0)",
    "logical_or": lambda _, a, b: f"tl.where(({a} != 0.0) | ({b} != 0.0), 1.0, 0.0)",
    "floor_divide": lambda by, a, b: f"tl.floor({by.div(a, b)})",
    "remainder": lambda by, a, b: f"{a} - tl.floor({by.div(a, b)}) * {b}",
    "sqrt": lambda by, a: by.sqrt(a),
    "rsqrt": lambda by, a: by.rsqrt(a),
    "exp": lambda by, a: by.call("tl.exp", a),
    "expm1": lambda by, a: by.call("expm1_lane", a),
    "log": lambda by, a: by.call("tl.log", a),
    "log1p": lambda by, a: by.call("log1p_lane", a),
    "tanh": lambda by, a: by.call("tanh_lane", a),
    "erf": lambda by, a: by.call("tl.erf", a),
    "sigmoid": lambda by, a: by.div("1.0", f"1.0 + {by.call('tl.exp', f'-{a}')}"),
    "silu": lambda by, a: by.div(a, f"1.0 + {by.call('tl.exp', f'-{a}')}"),
    "gelu_erf": lambda by, a: f"0.5 * {a} * (1.0 + {by.call('tl.erf', f'{a} * 0.7071067811865476')})",
}


class Writer:
    """Writes expressions for the nodes of one kernel by one plan."""

    def __init__(self, nodes: Sequence[Node], tensors: Mapping[str, TensorInfo], real: str, plan: Plan) -> None:
        """Begin.

        Args:
            nodes: nodes, in which arguments are positions.
            tensors: tensors by their names in the source.
            real: dtype of the computation.
            plan: form of the code.
        """
        self.real = TYPES[real]
        self._nodes = nodes
        self._tensors = tensors
        self._plan = plan
        self.arithmetic = Arithmetic(self.real, exact=plan.exact and real != "float64")

    def operation(self, node: Node) -> str:
        """Return an element-wise operation applied to its named operands, with constants as numbers.

        Raises:
            NoRuleError: there is no rule for an operation, or for a kind of power.
        """
        operands = [self._operand(arg) for arg in node.args]
        if all(self._nodes[arg].op == "const" for arg in node.args):
            operands[0] = f"tl.full((1, 1), {operands[0]}, {self.real})"
        if node.op == "pow":
            return self._power(node, operands)
        if node.op not in _OPERATIONS:
            raise NoRuleError(f"the operation `{node.op}` in Triton")
        return _OPERATIONS[node.op](self.arithmetic, *operands)

    def _power(self, node: Node, operands: list[str]) -> str:
        """By exponential and logarithm in double precision: a negative base has only whole powers."""
        base, exponent = (self._nodes[arg] for arg in node.args)
        if base.op == "const" and base.value > 0.0:
            logarithm = f"tl.log(tl.full((1, 1), {base.value!r}, {DOUBLE}))"
            return f"tl.exp({operands[1]}.to({DOUBLE}) * {logarithm}).to({self.real})"
        if exponent.op != "const":
            raise NoRuleError("a power with a computed exponent in Triton")
        whole = exponent.value.is_integer()
        argument = f"tl.abs({operands[0]})" if whole else operands[0]
        magnitude = f"tl.exp(tl.log({argument}.to({DOUBLE})) * {operands[1]}).to({self.real})"
        return f"tl.where({operands[0]} < 0.0, -1.0, 1.0) * {magnitude}" if exponent.value % 2 == 1 else magnitude

    def loaded(self, name: str, place: str, mask: str, *, once: bool = False) -> str:
        """Return a tensor's elements in the compute type; `once`: nothing else reads them."""
        zero = "0.0" if "float" in self._tensors[name].dtype else "0"
        guard = f", mask={mask}, other={zero}" if mask else ""
        hint = ', eviction_policy="evict_first"' if self._plan.stream and once else ""
        element = f"tl.load({address(name, place)}{guard}{hint})"
        return element if TYPES[self._tensors[name].dtype] == self.real else f"{element}.to({self.real})"

    def stored(self, name: str, place: str, value: str, mask: str) -> str:
        """Return the statement that writes a tensor's elements."""
        guard = f", mask={mask}" if mask else ""
        hint = ', cache_modifier=".cs"' if self._plan.stream else ""
        dtype = TYPES[self._tensors[name].dtype]
        cast = "" if dtype == self.real else f".to({dtype})"
        return f"tl.store({address(name, place)}, {value}{cast}{guard}{hint})"

    def numbered(self, place: str) -> str:
        """Return a position as a number of the compute type."""
        number = place or "0"
        if number.isdecimal():
            return f"tl.full((1, 1), {number}, {self.real})"
        return f"{number if number.isidentifier() else f'({number})'}.to({self.real})"

    def reduced(self, op: str, value: str, mask: str) -> str:
        """Return the reduction of a block over its columns, as one column; masked elements do not count."""
        chosen = f"tl.where({mask}, {value}, {_IDENTITIES[op]})" if mask else value
        if op == "sum" and self._plan.wide and self.real != DOUBLE:
            return f"tl.sum({chosen}.to({DOUBLE}), axis=1, keep_dims=True).to({self.real})"
        return f"tl.{op}({chosen}, axis=1, keep_dims=True)"

    def _operand(self, index: int) -> str:
        node = self._nodes[index]
        return literal(node.value) if node.op == "const" else f"v{index}"


def literal(value: float) -> str:
    """Return a number as a Triton literal."""
    if not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if value < 0 else repr(value)


def address(name: str, place: str) -> str:
    """Return a pointer to elements of a tensor."""
    return f"{pointer(name)} + {place}" if place else pointer(name)


def pointer(name: str) -> str:
    """Return the name of a tensor's pointer in a kernel; its ending keeps it distinct from all other names."""
    return f"{name}_ptr"
