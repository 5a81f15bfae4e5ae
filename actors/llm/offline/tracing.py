"""Tracing of row-wise programs: values, shapes, and the rules for torch's functions.

A rule gets the tracer and the arguments of the call by name, and returns the result. Functions and methods share a
rule: a method's tensor is its first argument. Formulas are those of torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from actors.llm.offline.graph import GraphBuilder, Kind, Node, NoRuleError, TensorInfo

FLOATING = frozenset({"float32", "float64", "bfloat16", "float16"})

Shape: TypeAlias = tuple[int, ...]
Value: TypeAlias = "Traced | float | int | bool | str | tuple[Value, ...] | dict[Value, Value] | None"
"""What an expression of the reference can be: a tensor, or a Python value known without running it."""


Item: TypeAlias = "str | int | tuple[int | None, ...] | None"
"""What stands in the brackets of an index: `...`, None, a position, or a slice as (start, stop, step)."""


class Traced(msgspec.Struct, frozen=True):
    """A tensor of the reference."""

    index: int
    shape: Shape


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape of an element-wise operation on both.

    Raises:
        NoRuleError: they do not fit.
    """
    rank = max(len(left), len(right))
    pairs = zip(_padded(left, rank), _padded(right, rank), strict=True)
    shape = []
    for one, other in pairs:
        if one != other and 1 not in {one, other}:
            raise NoRuleError(f"the shapes {left} and {right} do not broadcast")
        shape.append(other if one == 1 else one)
    return tuple(shape)


def reduced_dimensions(dims: Value, rank: int) -> Shape:
    """Return the dimensions of a reduction in order; `dims` as torch takes it.

    Raises:
        NoRuleError: they are none.
    """
    match dims:
        case None | ():
            return tuple(range(rank))
        case int():
            found: tuple[Value, ...] = (dims,)
        case tuple():
            found = dims
        case _:
            raise NoRuleError(f"{dims!r} as dimensions of a reduction")
    return tuple(sorted(dim % max(rank, 1) for dim in found if isinstance(dim, int)))


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


class Tracer(Protocol):
    """What rules build graphs with."""

    def load(self, tensor: TensorInfo) -> Traced:
        """Add an input or a parameter."""

    def unary(self, op: str, value: Value) -> Traced:
        """Add an element-wise operation on one tensor."""

    def binary(self, op: str, left: Value, right: Value) -> Traced:
        """Add an element-wise operation on two tensors, or a tensor and a number."""

    def reduce(self, op: str, value: Value, dims: Value, keepdim: bool) -> Traced:
        """Add a reduction; `dims` as torch takes it."""

    def tensor(self, value: Value) -> Traced:
        """Return a tensor; numbers become constants."""

    def reduced_count(self, value: Value, dims: Value) -> int:
        """Return how many elements one result of a reduction comes from."""

    def reshaped(self, value: Value, shape: Shape) -> Traced:
        """Return a tensor with its elements in the same order and another shape."""

    def indexed(self, value: Traced, items: Sequence[Item]) -> Traced:
        """Return `value[items]`."""


class RowTracer:
    """A graph under construction in the space of `full`, whose last `trailing` dimensions are the columns."""

    def __init__(self, full: Shape, trailing: int) -> None:
        self.graph = GraphBuilder()
        self.full = full
        self.trailing = trailing
        self.rank = len(full)
        split = self.rank - trailing
        self._leading, self._last = full[:split], full[split:]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self._leading)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return math.prod(self._last)

    def load(self, tensor: TensorInfo) -> Traced:
        """Add an input or a parameter.

        Raises:
            NoRuleError: its dtype or the way it broadcasts is not covered.
        """
        if tensor.dtype not in FLOATING:
            raise NoRuleError(f"tensor `{tensor.name}` of dtype {tensor.dtype}: only floating-point tensors")
        kind = self._kind_of(tensor)
        return Traced(self.graph.add(Node("load", kind=kind, name=tensor.name)), tensor.shape)

    def unary(self, op: str, value: Value) -> Traced:
        """Add an element-wise operation on one tensor."""
        operand = self.tensor(value)
        return Traced(self.graph.apply(op, operand.index), operand.shape)

    def binary(self, op: str, left: Value, right: Value) -> Traced:
        """Add an element-wise operation on two tensors, or a tensor and a number.

        Raises:
            NoRuleError: the operands broadcast in another way than over rows and columns.
        """
        one, other = self.tensor(left), self.tensor(right)
        shape = broadcast(one.shape, other.shape)
        index = self.graph.apply(op, one.index, other.index)
        self._check_layout(index, shape, (one, other))
        return Traced(index, shape)

    def reduce(self, op: str, value: Value, dims: Value, keepdim: bool) -> Traced:
        """Add a reduction over all columns; `dims` as torch takes it.

        Raises:
            NoRuleError: it reduces other dimensions than the last `trailing` ones of a full tensor.
        """
        operand = self.tensor(value)
        reduced = reduced_dimensions(dims, len(operand.shape))
        wanted = tuple(range(self.rank - self.trailing, self.rank))
        if len(operand.shape) != self.rank or reduced != wanted or self._kind(operand) != "full":
            raise NoRuleError(f"a reduction over dimensions {reduced} of a tensor of shape {operand.shape}")
        shape = self._leading + ((1,) * self.trailing if keepdim else ())
        return Traced(self.graph.reduce(op, operand.index), shape)

    def tensor(self, value: Value) -> Traced:
        """Return a tensor; numbers become constants.

        Raises:
            NoRuleError: it is neither.
        """
        match value:
            case Traced():
                return value
            case bool() | int() | float():
                return Traced(self.graph.const(float(value)), ())
            case _:
                raise NoRuleError(f"{value!r} where a tensor or a number is needed")

    def reduced_count(self, value: Value, dims: Value) -> int:
        """Return how many elements one result of a reduction comes from."""
        shape = self.tensor(value).shape
        return math.prod(shape[dim] for dim in reduced_dimensions(dims, len(shape)))

    def indexed(self, value: Traced, items: Sequence[Item]) -> Traced:
        """Return a per-row value with a dimension of size 1 behind its own: `value[..., None]`.

        Raises:
            NoRuleError: another index.
        """
        before = [item for item in items[:-1] if item != "..."]
        short = "..." not in items and len(before) < len(value.shape)
        if items[-1:] != [None] or short or any(item != (None, None, None) for item in before):
            raise NoRuleError("an index other than `[..., None]`")
        return self.reshaped(value, (*value.shape, 1))

    def reshaped(self, value: Value, shape: Shape) -> Traced:
        """Return a value with dimensions of size 1 added or dropped at its end.

        Raises:
            NoRuleError: another shape.
        """
        traced = self.tensor(value)
        shorter, longer = sorted((shape, traced.shape), key=len)
        if longer[: len(shorter)] != shorter or math.prod(longer[len(shorter) :]) != 1:
            raise NoRuleError(f"a tensor of shape {traced.shape} as one of shape {shape}")
        return Traced(traced.index, shape)

    def _kind(self, value: Traced) -> Kind:
        return self.graph.nodes[value.index].kind

    def _kind_of(self, tensor: TensorInfo) -> Kind:
        shape = _padded(tensor.shape, self.rank)
        split = self.rank - self.trailing
        ones_before = all(size == 1 for size in shape[:split])
        ones_behind = all(size == 1 for size in shape[split:])
        if shape == self.full:
            return "full"
        if ones_before and ones_behind:
            return "scalar"
        if ones_before and shape[split:] == self._last:
            return "vector"
        if ones_behind and shape[:split] == self._leading:
            return "row"
        raise NoRuleError(f"tensor `{tensor.name}` of shape {tensor.shape} next to {self.full}")

    def _check_layout(self, index: int, shape: Shape, operands: tuple[Traced, ...]) -> None:
        """See that rows meet rows: a reduction without `keepdim` would broadcast along the columns."""
        kind = self.graph.nodes[index].kind
        ones = (1,) * self.trailing
        for operand in operands:
            if (
                self._kind(operand) == "row"
                and kind == "full"
                and _padded(operand.shape, self.rank)[-len(ones) :] != ones
            ):
                raise NoRuleError(f"a value per row of shape {operand.shape} that is broadcast along the columns")
        expected = {"full": self.full, "row": self._leading + ones}.get(kind)
        squeezed = kind == "row" and shape == self._leading
        if expected is not None and not squeezed and _padded(shape, self.rank) != expected:
            raise NoRuleError(f"an operation with a result of shape {shape} next to {self.full}")


Arguments: TypeAlias = dict[str, Value]
Rule: TypeAlias = Callable[[Tracer, Arguments], Value]


class Signature:
    """Names and defaults of a rule's arguments, as torch has them."""

    def __init__(self, names: str, rule: Rule, **defaults: Value) -> None:
        self._names = names.split()
        self._defaults = defaults
        self._rule = rule

    def call(self, name: str, tracer: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Bind the arguments and apply the rule.

        Raises:
            NoRuleError: arguments that the rule does not know, or that it needs and are not given.
        """
        if len(args) > len(self._names):
            raise NoRuleError(f"`{name}` with {len(args)} positional arguments")
        bound: Arguments = {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}
        unknown = set(bound) - set(self._names)
        missing = [needed for needed in self._names if needed not in bound]
        if unknown or missing:
            raise NoRuleError(f"`{name}` with the arguments {sorted(bound)}")
        return self._rule(tracer, bound)


def _unary(op: str) -> Signature:
    return Signature("input", lambda tracer, a: tracer.unary(op, a["input"]))


def _activation(op: str) -> Signature:
    return Signature("input inplace", lambda tracer, a: tracer.unary(op, a["input"]), inplace=False)


def _binary(op: str) -> Signature:
    def rule(tracer: Tracer, a: Arguments) -> Value:
        other = a["other"] if a["alpha"] == 1 else tracer.binary("mul", a["other"], a["alpha"])
        return tracer.binary(op, a["input"], other)

    return Signature("input other alpha", rule, alpha=1)


def _identity(names: str) -> Signature:
    optional: dict[str, Value] = dict.fromkeys(names.split())
    return Signature(f"input {names}", lambda _, a: a["input"], **optional)


def power(tracer: Tracer, base: Value, exponent: Value) -> Traced:
    """Return base ** exponent; small whole and half exponents by multiplication and roots."""
    if exponent == 0.5:
        return tracer.unary("sqrt", base)
    if exponent == -0.5:
        return tracer.unary("rsqrt", base)
    if isinstance(exponent, int | float) and float(exponent).is_integer() and 1 <= abs(exponent) <= 8:
        product = tracer.tensor(base)
        for _ in range(int(abs(exponent)) - 1):
            product = tracer.binary("mul", product, base)
        return product if exponent > 0 else tracer.binary("div", 1.0, product)
    return tracer.binary("pow", base, exponent)


def _clamp(tracer: Tracer, a: Arguments) -> Value:
    value = a["input"]
    if a["min"] is not None:
        value = tracer.binary("maximum", value, a["min"])
    if a["max"] is not None:
        value = tracer.binary("minimum", value, a["max"])
    return value


def _leaky_relu(tracer: Tracer, a: Arguments) -> Value:
    below = tracer.binary("mul", tracer.binary("minimum", a["input"], 0.0), a["negative_slope"])
    return tracer.binary("add", tracer.binary("maximum", a["input"], 0.0), below)


def _elu(tracer: Tracer, a: Arguments) -> Value:
    below = tracer.unary("expm1", tracer.binary("minimum", a["input"], 0.0))
    scaled = tracer.binary("mul", below, a["alpha"])
    return tracer.binary("add", tracer.binary("maximum", a["input"], 0.0), scaled)


def _selu(tracer: Tracer, a: Arguments) -> Value:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return tracer.binary("mul", _elu(tracer, {"input": a["input"], "alpha": alpha}), scale)


def _gelu(tracer: Tracer, a: Arguments) -> Value:
    x = a["input"]
    if a["approximate"] == "none":
        return tracer.unary("gelu_erf", x)
    cubed = tracer.binary("mul", power(tracer, x, 3), 0.044715)
    inner = tracer.binary("mul", tracer.binary("add", x, cubed), math.sqrt(2.0 / math.pi))
    # 0.5 * (1 + tanh(u)) is sigmoid(2u): the same function without the cancellation near -1.
    return tracer.binary("mul", x, tracer.unary("sigmoid", tracer.binary("mul", inner, 2.0)))


def _softplus(tracer: Tracer, a: Arguments) -> Value:
    if a["beta"] != 1:
        raise NoRuleError(f"`softplus` with beta={a['beta']!r}")
    x = a["input"]
    tail = tracer.unary("log1p", tracer.unary("exp", tracer.unary("neg", tracer.unary("abs", x))))
    return tracer.binary("add", tracer.binary("maximum", x, 0.0), tail)


def _mish(tracer: Tracer, a: Arguments) -> Value:
    soft = _softplus(tracer, {"input": a["input"], "beta": 1})
    return tracer.binary("mul", a["input"], tracer.unary("tanh", soft))


def _softsign(tracer: Tracer, a: Arguments) -> Value:
    return tracer.binary("div", a["input"], tracer.binary("add", tracer.unary("abs", a["input"]), 1.0))


def _hardsigmoid(tracer: Tracer, a: Arguments) -> Value:
    shifted = tracer.binary("add", tracer.binary("div", a["input"], 6.0), 0.5)
    return tracer.binary("minimum", tracer.binary("maximum", shifted, 0.0), 1.0)


def _hardswish(tracer: Tracer, a: Arguments) -> Value:
    return tracer.binary("mul", a["input"], _hardsigmoid(tracer, a))


def _reduction(op: str) -> Signature:
    def rule(tracer: Tracer, a: Arguments) -> Value:
        return tracer.reduce(op, a["input"], a["dim"], bool(a["keepdim"]))

    return Signature("input dim keepdim dtype", rule, dim=None, keepdim=False, dtype=None)


def _max_with_indices(op: str) -> Signature:
    """`max` over a dimension returns values and indices; only the values have a rule."""

    def rule(tracer: Tracer, a: Arguments) -> Value:
        if isinstance(a["dim"], Traced):
            return tracer.binary(f"{op}imum", a["input"], a["dim"])
        reduced = tracer.reduce(op, a["input"], a["dim"], bool(a["keepdim"]))
        return reduced if a["dim"] is None else (reduced, "indices")

    return Signature("input dim keepdim", rule, dim=None, keepdim=False)


def mean(tracer: Tracer, x: Value, dim: Value, keepdim: bool) -> Traced:
    """Return the mean over `dim`."""
    return tracer.binary("div", tracer.reduce("sum", x, dim, keepdim), tracer.reduced_count(x, dim))


def variance(tracer: Tracer, x: Value, dim: Value, keepdim: bool, correction: float) -> Traced:
    """Return the variance over `dim`: the mean first, then the squares of what is left, which loses no digits."""
    centred = tracer.binary("sub", x, mean(tracer, x, dim, keepdim=True))
    total = tracer.reduce("sum", tracer.binary("mul", centred, centred), dim, keepdim)
    return tracer.binary("div", total, tracer.reduced_count(x, dim) - correction)


def _mean(tracer: Tracer, a: Arguments) -> Value:
    return mean(tracer, a["input"], a["dim"], bool(a["keepdim"]))


def _var(tracer: Tracer, a: Arguments) -> Value:
    correction = a["correction"] if a["unbiased"] is None else float(bool(a["unbiased"]))
    if not isinstance(correction, int | float):
        raise NoRuleError(f"`var` with correction={correction!r}")
    return variance(tracer, a["input"], a["dim"], bool(a["keepdim"]), correction)


def _std(tracer: Tracer, a: Arguments) -> Value:
    return tracer.unary("sqrt", _var(tracer, a))


def _norm(tracer: Tracer, a: Arguments) -> Value:
    if a["p"] not in {2, "fro"}:
        raise NoRuleError(f"`norm` with p={a['p']!r}")
    squares = tracer.binary("mul", a["input"], a["input"])
    return tracer.unary("sqrt", tracer.reduce("sum", squares, a["dim"], bool(a["keepdim"])))


def _normalize(tracer: Tracer, a: Arguments) -> Value:
    length = _norm(tracer, {**a, "keepdim": True})
    return tracer.binary("div", a["input"], tracer.binary("maximum", length, a["eps"]))


def _shifted_exp(tracer: Tracer, x: Value, dim: Value) -> tuple[Traced, Traced]:
    """Return x less its maximum, and the exponential of that."""
    shifted = tracer.binary("sub", x, tracer.reduce("max", x, dim, keepdim=True))
    return shifted, tracer.unary("exp", shifted)


def _softmax(tracer: Tracer, a: Arguments) -> Value:
    _, weights = _shifted_exp(tracer, a["input"], a["dim"])
    return tracer.binary("div", weights, tracer.reduce("sum", weights, a["dim"], keepdim=True))


def _log_softmax(tracer: Tracer, a: Arguments) -> Value:
    shifted, weights = _shifted_exp(tracer, a["input"], a["dim"])
    return tracer.binary("sub", shifted, tracer.unary("log", tracer.reduce("sum", weights, a["dim"], keepdim=True)))


def _logsumexp(tracer: Tracer, a: Arguments) -> Value:
    keepdim = bool(a["keepdim"])
    _, weights = _shifted_exp(tracer, a["input"], a["dim"])
    total = tracer.unary("log", tracer.reduce("sum", weights, a["dim"], keepdim))
    return tracer.binary("add", total, tracer.reduce("max", a["input"], a["dim"], keepdim))


def _scaled(tracer: Tracer, value: Traced, a: Arguments) -> Value:
    if a["weight"] is not None:
        value = tracer.binary("mul", value, a["weight"])
    return value if a["bias"] is None else tracer.binary("add", value, a["bias"])


def _normalized_dims(shape: Value) -> Value:
    count = len(shape) if isinstance(shape, tuple) else 1
    return tuple(range(-count, 0))


def _layer_norm(tracer: Tracer, a: Arguments) -> Value:
    dims = _normalized_dims(a["normalized_shape"])
    centred = tracer.binary("sub", a["input"], mean(tracer, a["input"], dims, keepdim=True))
    spread = tracer.binary("add", variance(tracer, a["input"], dims, keepdim=True, correction=0), a["eps"])
    return _scaled(tracer, tracer.binary("mul", centred, tracer.unary("rsqrt", spread)), a)


def _rms_norm(tracer: Tracer, a: Arguments) -> Value:
    if a["eps"] is None:
        raise NoRuleError("`rms_norm` without eps")
    dims = _normalized_dims(a["normalized_shape"])
    squares = mean(tracer, tracer.binary("mul", a["input"], a["input"]), dims, keepdim=True)
    root = tracer.unary("rsqrt", tracer.binary("add", squares, a["eps"]))
    return _scaled(tracer, tracer.binary("mul", a["input"], root), {"weight": a["weight"], "bias": None})


def _unsqueeze(tracer: Tracer, a: Arguments) -> Value:
    value = tracer.tensor(a["input"])
    if not isinstance(a["dim"], int):
        raise NoRuleError(f"`unsqueeze` at dimension {a['dim']!r}")
    return tracer.indexed(value, [*[(None, None, None)] * (a["dim"] % (len(value.shape) + 1)), None])


def _squeeze(tracer: Tracer, a: Arguments) -> Value:
    value = tracer.tensor(a["input"])
    rank = len(value.shape)
    dims = {dim for dim, size in enumerate(value.shape) if size == 1}
    if a["dim"] is not None:
        dims &= set(reduced_dimensions(a["dim"], rank))
    return tracer.reshaped(value, tuple(size for dim, size in enumerate(value.shape) if dim not in dims))


def _spread(rule: Rule) -> Signature:
    names = "input dim unbiased keepdim correction"
    return Signature(names, rule, dim=None, unbiased=None, keepdim=False, correction=1)


RULES: dict[str, Signature] = {
    **{name: _unary(name) for name in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "neg", "tanh", "erf")},
    **{name: _activation(name) for name in ("sigmoid", "silu", "relu")},
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "div": _binary("div"),
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "multiply": _binary("mul"),
    "divide": _binary("div"),
    "subtract": _binary("sub"),
    "swish": _activation("silu"),
    "negative": _unary("neg"),
    "square": Signature("input", lambda tracer, a: power(tracer, a["input"], 2)),
    "reciprocal": Signature("input", lambda tracer, a: tracer.binary("div", 1.0, a["input"])),
    "pow": Signature("input exponent", lambda tracer, a: power(tracer, a["input"], a["exponent"])),
    "clamp": Signature("input min max", _clamp, min=None, max=None),
    "clip": Signature("input min max", _clamp, min=None, max=None),
    "clamp_min": Signature("input min max", _clamp, max=None),
    "clamp_max": Signature("input max min", _clamp, min=None),
    "hardtanh": Signature("input min max inplace", _clamp, min=-1.0, max=1.0, inplace=False),
    "relu6": Signature("input min max", _clamp, min=0.0, max=6.0),
    "leaky_relu": Signature("input negative_slope inplace", _leaky_relu, negative_slope=0.01, inplace=False),
    "elu": Signature("input alpha inplace", _elu, alpha=1.0, inplace=False),
    "selu": Signature("input inplace", _selu, inplace=False),
    "gelu": Signature("input approximate", _gelu, approximate="none"),
    "softplus": Signature("input beta threshold", _softplus, beta=1, threshold=20),
    "mish": Signature("input inplace", _mish, inplace=False),
    "softsign": Signature("input", _softsign),
    "hardsigmoid": Signature("input inplace", _hardsigmoid, inplace=False),
    "hardswish": Signature("input inplace", _hardswish, inplace=False),
    "sum": _reduction("sum"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "max": _max_with_indices("max"),
    "min": _max_with_indices("min"),
    "mean": Signature("input dim keepdim dtype", _mean, dim=None, keepdim=False, dtype=None),
    "var": _spread(_var),
    "std": _spread(_std),
    "norm": Signature("input p dim keepdim", _norm, p=2, dim=None, keepdim=False),
    "normalize": Signature("input p dim eps", _normalize, p=2, dim=1, eps=1e-12),
    "softmax": Signature("input dim dtype", _softmax, dtype=None),
    "log_softmax": Signature("input dim dtype", _log_softmax, dtype=None),
    "logsumexp": Signature("input dim keepdim", _logsumexp, keepdim=False),
    "layer_norm": Signature(
        "input normalized_shape weight bias eps", _layer_norm, weight=None, bias=None, eps=1e-5
    ),
    "rms_norm": Signature("input normalized_shape weight eps", _rms_norm, weight=None, eps=None),
    "unsqueeze": Signature("input dim", _unsqueeze),
    "squeeze": Signature("input dim", _squeeze, dim=None),
    "contiguous": _identity(""),
    "clone": _identity(""),
    "detach": _identity(""),
    "float": _identity(""),
    "to": _identity("dtype"),
    "type_as": _identity("other"),
}  # fmt: skip
"""By torch's name, without its namespace. Casts are identities: arithmetic is at least as wide as every tensor."""
