"""Tensors of a reference: views of values computed element by element, with the operations of torch on them.

Formulas are those of torch's documentation. All arithmetic is floating-point: casts are identities, integers
(positions, masks) are numbers of the compute type, exact up to 2^24 in float32.
"""

from __future__ import annotations

import inspect
import math
import string
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from actors.llm.offline.stages import (
    Index,
    NoRuleError,
    TensorInfo,
    combined,
    identity,
    part,
    row_major,
    substituted,
    whole,
)

FLOATING = frozenset({"float32", "float64", "bfloat16", "float16"})
_COUNTING = frozenset({"int64", "int32", "int16", "int8", "uint8", "bool"})
_TRUTHS = frozenset({"gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or"})

Shape: TypeAlias = tuple[int, ...]
Value: TypeAlias = "object"
"""Value of an expression of the reference: a tensor, a module, or a Python value known without running it."""
Item: TypeAlias = "str | int | tuple[int | None, ...] | None"
"""Content of the brackets of an index: `...`, None, a position, or a slice as (start, stop, step)."""
Names: TypeAlias = Sequence[str]


class Use(msgspec.Struct, frozen=True):
    """An element of an operand: the node, and its position along each of its dimensions."""

    node: int
    indices: tuple[Index, ...]
    """Positions over the dimensions of the node that uses it, then over those that it sums over."""


class TensorNode(msgspec.Struct, frozen=True):
    """A tensor that is computed, element by element."""

    op: str
    """`const`, `load`, `index` (the position along its only dimension), `sum`/`max`/`min` (over `summed`), `contract`
    (the sum over `summed` of the product of two operands), or an element-wise operation."""
    shape: Shape = ()
    summed: Shape = ()
    args: tuple[Use, ...] = ()
    value: float = 0.0
    name: str = ""
    """Name of the tensor of a `load`."""


class Graph:
    """Tensors under construction; the same operation on the same operands is one node."""

    def __init__(self) -> None:
        self.nodes: list[TensorNode] = []
        self._known: dict[TensorNode, int] = {}
        self._dtypes: dict[str, str] = {}

    def add(self, node: TensorNode) -> Tensor:
        """Add a node and return it as a tensor."""
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return Tensor(self, self._known[node], node.shape, identity(node.shape))

    def load(self, tensor: TensorInfo) -> Tensor:
        """Add an input or a parameter.

        Raises:
            NoRuleError: its dtype is not covered.
        """
        if tensor.dtype not in FLOATING | _COUNTING:
            raise NoRuleError(f"tensor `{tensor.name}` of dtype {tensor.dtype}")
        self._dtypes[tensor.name] = tensor.dtype
        return self.add(TensorNode("load", tensor.shape, name=tensor.name))

    def tensor(self, value: Value) -> Tensor:
        """Return a tensor; numbers become constants.

        Raises:
            NoRuleError: it is neither.
        """
        if isinstance(value, Tensor):
            return value
        if isinstance(value, int | float):
            return self.add(TensorNode("const", value=float(value)))
        raise NoRuleError(f"{value!r} where a tensor or a number is needed")

    def apply(self, op: str, *values: Value) -> Tensor:
        """Add an element-wise operation on tensors and numbers.

        Raises:
            NoRuleError: the operands do not broadcast.
        """
        tensors = [self.tensor(value) for value in values]
        shape: Shape = ()
        for tensor in tensors:
            shape = _broadcast(shape, tensor.shape)
        uses = tuple(Use(seen.node, seen.indices) for seen in (tensor.expanded(shape) for tensor in tensors))
        return self.add(TensorNode(op, shape, args=uses))

    def is_truth(self, tensor: Tensor) -> bool:
        """Return True if a tensor contains truth values: a comparison, or a tensor of dtype bool."""
        node = self.nodes[tensor.node]
        return node.op in _TRUTHS or (node.op == "load" and self._dtypes[node.name] == "bool")


class Tensor:
    """A node, seen through a view."""

    def __init__(self, graph: Graph, node: int, shape: Shape, indices: tuple[Index, ...]) -> None:
        """Begin. `indices`: positions along each dimension of the node, over the dimensions of `shape`."""
        self.graph, self.node, self.shape, self.indices = graph, node, shape, indices

    def apply(self, op: str, *others: Value) -> Tensor:
        """Return an element-wise operation on this tensor and others."""
        return self.graph.apply(op, self, *others)

    def __add__(self, other: Value) -> Tensor:
        return self.apply("add", other)

    def __sub__(self, other: Value) -> Tensor:
        return self.apply("sub", other)

    def __mul__(self, other: Value) -> Tensor:
        return self.apply("mul", other)

    def __truediv__(self, other: Value) -> Tensor:
        return self.apply("div", other)

    def __neg__(self) -> Tensor:
        return self.apply("neg")

    def reduced(self, op: str, dims: Value, *, keepdim: bool) -> Tensor:
        """Return a reduction; `dims` in torch's form."""
        rank = len(self.shape)
        along = _dims(dims, rank)
        order = [*(dim for dim in range(rank) if dim not in along), *along]
        places = [whole(order.index(dim), size) for dim, size in enumerate(self.shape)]
        indices = tuple(substituted(index, places) for index in self.indices)
        sizes = [tuple(self.shape[dim] for dim in order if (dim in along) is inside) for inside in (False, True)]
        found = self.graph.add(TensorNode(op, sizes[0], sizes[1], (Use(self.node, indices),)))
        if not keepdim:
            return found
        return found.reshaped(tuple(1 if dim in along else size for dim, size in enumerate(self.shape)))

    def reshaped(self, shape: Shape) -> Tensor:
        """Return the elements in the same order in another shape.

        Raises:
            NoRuleError: the number of elements differs.
        """
        if math.prod(shape) != math.prod(self.shape):
            raise NoRuleError(f"a tensor of shape {self.shape} as one of shape {shape}")
        flat = combined(identity(shape), row_major(shape))
        places = [part(flat, stride, size) for stride, size in zip(row_major(self.shape), self.shape, strict=True)]
        return self.viewed(shape, places)

    def viewed(self, shape: Shape, places: Sequence[Index]) -> Tensor:
        """Return a view; `places` gives an element's position along each dimension of this tensor."""
        return Tensor(self.graph, self.node, shape, tuple(substituted(index, places) for index in self.indices))

    def expanded(self, shape: Shape) -> Tensor:
        """Return the tensor repeated along new dimensions and along those of size 1."""
        skipped = len(shape) - len(self.shape)
        return self.viewed(shape, [whole(skipped + dim, size) for dim, size in enumerate(self.shape)])

    def arranged(self, names: Names, order: Names) -> Tensor:
        """Return the tensor with its named dimensions in another order; missing ones are of size 1."""
        at = list(names)
        shape = tuple(self.shape[at.index(name)] if name in at else 1 for name in order)
        places = [whole(list(order).index(name), size) for name, size in zip(names, self.shape, strict=True)]
        return self.viewed(shape, places)

    def indexed(self, items: Sequence[Item]) -> Tensor:
        """Return `self[items]`: new dimensions, single positions and slices.

        Raises:
            NoRuleError: a position is out of range.
        """
        taken = sum(item is not None and item != "..." for item in items)
        if taken > len(self.shape):
            raise NoRuleError(f"{taken} indices into a tensor of shape {self.shape}")
        rest: list[Item] = [(None, None, None)] * (len(self.shape) - taken)
        at = items.index("...") if "..." in items else len(items)
        shape: list[int] = []
        places: list[Index] = []
        for item in [*items[:at], *rest, *items[at + 1 :]]:
            if item is None:
                shape.append(1)
                continue
            span = _span(item, self.shape[len(places)])
            index = combined([whole(len(shape), len(span))], [span.step])
            places.append(Index(index.offset + span.start, index.terms))
            if isinstance(item, tuple):
                shape.append(len(span))
        return self.viewed(tuple(shape), places)


def _span(item: Item, size: int) -> range:
    """Return the positions of a dimension that an item selects."""
    if isinstance(item, int):
        if not -size <= item < size:
            raise NoRuleError(f"position {item} of a dimension of size {size}")
        return range(item % size, item % size + 1)
    if not isinstance(item, tuple):
        raise NoRuleError("an ellipsis that stands twice")
    positions = range(size)[slice(*item)]
    if len(positions) == 0 or positions.step < 1:
        raise NoRuleError("an empty or backward slice")
    return positions


def _broadcast(left: Shape, right: Shape) -> Shape:
    rank = max(len(left), len(right))
    shape = []
    for one, other in zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True):
        if one != other and 1 not in {one, other}:
            raise NoRuleError(f"the shapes {left} and {right} do not broadcast")
        shape.append(other if one == 1 else one)
    return tuple(shape)


def _numbers(value: Value, what: str) -> Shape:
    """Return a tuple of whole numbers; a single number becomes a tuple."""
    found = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int) for item in found):
        raise NoRuleError(f"{value!r} as {what}")
    return tuple(item for item in found if isinstance(item, int))


def _dim(value: Value, rank: int) -> int:
    if not isinstance(value, int) or not -rank <= value < rank:
        raise NoRuleError(f"{value!r} as one of {rank} dimensions")
    return value % rank


def _dims(value: Value, rank: int) -> Shape:
    """Return the dimensions of a reduction in order."""
    if value is None or value == ():
        return tuple(range(rank))
    return tuple(sorted(dim % max(rank, 1) for dim in _numbers(value, "dimensions of a reduction")))


def contracted(left: Tensor, right: Tensor, terms: tuple[Names, Names, Names]) -> Tensor:
    """Return a sum of products; `terms` names the dimensions of both operands and of the result, as in einsum.

    Raises:
        NoRuleError: sizes do not fit, or a name stands twice in one operand.
    """
    if set(terms[0]) | set(terms[1]) <= set(terms[2]):
        return left.arranged(terms[0], terms[2]) * right.arranged(terms[1], terms[2])
    sizes: dict[str, int] = {}
    for tensor, names in ((left, terms[0]), (right, terms[1])):
        if len(names) != len(tensor.shape) or len(set(names)) != len(names):
            raise NoRuleError(f"an einsum of {tensor.shape} over the dimensions {''.join(names)}")
        for name, size in zip(names, tensor.shape, strict=True):
            if size != 1 and sizes.get(name, 1) not in {1, size}:
                raise NoRuleError(f"a product of tensors of shapes {left.shape} and {right.shape}")
            sizes[name] = max(size, sizes.get(name, 1))
    order = [*terms[2], *(name for name in sizes if name not in terms[2])]
    seen = (left.arranged(terms[0], order), right.arranged(terms[1], order))
    shape = tuple(sizes[name] for name in order)
    count = len(terms[2])
    uses = tuple(Use(tensor.node, tensor.indices) for tensor in seen)
    return left.graph.add(TensorNode("contract", shape[:count], shape[count:], uses))


def _spelled(names: str, rank: int, spare: str) -> str:
    """Return the names of an operand's dimensions with letters for its ellipsis, the last one first."""
    count = rank - len(names.replace("...", ""))
    return names.replace("...", spare[:count][::-1])


def _einsum(equation: Value, *operands: Value) -> Tensor:
    """Contract more than two operands from left to right."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple) else operands
    tensors = [tensor for tensor in given if isinstance(tensor, Tensor)]
    before, arrow, out = str(equation).replace(" ", "").partition("->")
    inputs = before.split(",")
    if len(inputs) != len(tensors):
        raise NoRuleError(f"the equation {equation!r} for {len(tensors)} operands")
    spare = "".join(letter for letter in string.ascii_letters if letter not in before)
    wide = [len(tensor.shape) - len(names.replace("...", "")) for names, tensor in zip(inputs, tensors, strict=True)]
    most = max((count for names, count in zip(inputs, wide, strict=True) if "..." in names), default=0)
    inputs = [_spelled(names, len(tensor.shape), spare) for names, tensor in zip(inputs, tensors, strict=True)]
    letters = "".join(inputs)
    out = out.replace("...", spare[:most][::-1]) if arrow else "".join(
        letter for letter in sorted(set(letters)) if letters.count(letter) == 1)  # fmt: skip
    found, names = tensors[0], inputs[0]
    if len(set(names)) != len(names):
        raise NoRuleError(f"an einsum with the diagonal {names!r}")
    alone = tuple(dim for dim, name in enumerate(names) if name not in "".join(inputs[1:]) + out)
    if alone:
        found = found.reduced("sum", alone, keepdim=False)
        names = "".join(name for dim, name in enumerate(names) if dim not in alone)
    for position, (other, others) in enumerate(zip(tensors[1:], inputs[1:], strict=True), start=2):
        later = "".join(inputs[position:]) + out
        kept = out if position == len(inputs) else "".join(n for n in dict.fromkeys(names + others) if n in later)
        found, names = contracted(found, other, (names, others, kept)), kept
    return found.arranged(names, out) if names != out else found


def _matmul(x: Tensor, factor: Value) -> Tensor:
    other = x.graph.tensor(factor)
    if not x.shape or not other.shape:
        raise NoRuleError("a matrix product with a number")
    rank = max(len(x.shape), len(other.shape), 2)
    batch = [f"batch{dim}" for dim in range(rank - 2)]
    left = ["k"] if len(x.shape) == 1 else [*batch, "m", "k"][-len(x.shape) :]
    right = ["k"] if len(other.shape) == 1 else [*batch, "k", "n"][-len(other.shape) :]
    out = [*batch, *left[-2:-1], *(["n"] if len(other.shape) > 1 else [])]
    return contracted(x, other, (left, right, out))


def _linear(x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    factor = x.graph.tensor(weight)
    names = string.ascii_letters[: len(x.shape)]
    out = [*names[:-1], "out"][: len(x.shape) - 2 + len(factor.shape)]
    found = contracted(x, factor, (names, ["out", names[-1]][-len(factor.shape) :], out))
    return found if bias is None else found + bias


def _addmm(x: Tensor, mat1: Tensor, mat2: Tensor, beta: Value = 1, alpha: Value = 1) -> Tensor:
    found = _matmul(mat1, mat2)
    return (found if alpha == 1 else found * alpha) + (x if beta == 1 else x * beta)


def power(base: Tensor, exponent: Value) -> Tensor:
    """Return base ** exponent; small whole and half exponents by multiplication and roots."""
    if exponent in {0.5, -0.5} and not isinstance(exponent, Tensor):
        return base.apply("sqrt" if exponent == 0.5 else "rsqrt")
    if isinstance(exponent, int | float) and float(exponent).is_integer() and 1 <= abs(exponent) <= 8:
        product = base
        for _ in range(int(abs(exponent)) - 1):
            product = product * base
        return product if exponent > 0 else base.graph.apply("div", 1.0, product)
    return base.apply("pow", exponent)


def _clamp(x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    above = x if low is None else x.apply("maximum", low)
    return above if high is None else above.apply("minimum", high)


def _leaky_relu(x: Tensor, negative_slope: Value = 0.01) -> Tensor:
    return x.apply("maximum", 0.0) + x.apply("minimum", 0.0) * negative_slope


def _elu(x: Tensor, alpha: Value = 1.0) -> Tensor:
    return x.apply("maximum", 0.0) + x.apply("minimum", 0.0).apply("expm1") * alpha


def _gelu(x: Tensor, approximate: Value = "none") -> Tensor:
    if approximate == "none":
        return x.apply("gelu_erf")
    inner = (x + power(x, 3) * 0.044715) * math.sqrt(2.0 / math.pi)
    # 0.5 * (1 + tanh(u)) is sigmoid(2u): the same function without the cancellation near -1.
    return x * (inner * 2.0).apply("sigmoid")


def _softplus(x: Tensor, beta: Value = 1, threshold: Value = 20) -> Tensor:  # noqa: ARG001 - beyond it torch is less exact
    if beta != 1:
        raise NoRuleError(f"`softplus` with beta={beta!r}")
    return x.apply("maximum", 0.0) + (-x.apply("abs")).apply("exp").apply("log1p")


def _hardsigmoid(x: Tensor) -> Tensor:
    return _clamp(x / 6.0 + 0.5, 0.0, 1.0)


def _sum(x: Tensor, dim: Value = None, keepdim: Value = False) -> Tensor:
    return x.reduced("sum", dim, keepdim=bool(keepdim))


def _mean(x: Tensor, dim: Value = None, keepdim: Value = False) -> Tensor:
    return _sum(x, dim, keepdim) / math.prod(x.shape[at] for at in _dims(dim, len(x.shape)))


def _extremum(op: str) -> Rule:
    """`max` over a dimension returns values and indices; only the values have a rule."""

    def rule(x: Tensor, dim: Value = None, keepdim: Value = False) -> Value:
        if isinstance(dim, Tensor):
            return x.apply(f"{op}imum", dim)
        found = x.reduced(op, dim, keepdim=bool(keepdim))
        return found if dim is None else (found, "indices")

    return rule


def _var(
    x: Tensor, dim: Value = None, unbiased: Value = None, keepdim: Value = False, correction: Value = 1
) -> Tensor:  # fmt: skip
    """The mean first, then the squares of the deviations, which loses no digits."""
    less = correction if unbiased is None else float(bool(unbiased))
    if not isinstance(less, int | float):
        raise NoRuleError(f"`var` with correction={correction!r}")
    squares = power(x - _mean(x, dim, keepdim=True), 2)
    return _sum(squares, dim, keepdim) / (math.prod(x.shape[at] for at in _dims(dim, len(x.shape))) - less)


def _norm(x: Tensor, p: Value = 2, dim: Value = None, keepdim: Value = False) -> Tensor:
    if p not in {2, "fro"}:
        raise NoRuleError(f"`norm` with p={p!r}")
    return _sum(x * x, dim, keepdim).apply("sqrt")


def _normalize(x: Tensor, p: Value = 2, dim: Value = 1, eps: Value = 1e-12) -> Tensor:
    return x / _norm(x, p, dim, keepdim=True).apply("maximum", eps)


def _softmax(x: Tensor, dim: Value) -> Tensor:
    weights = (x - x.reduced("max", dim, keepdim=True)).apply("exp")
    return weights / _sum(weights, dim, keepdim=True)


def _logsumexp(x: Tensor, dim: Value, keepdim: Value = False) -> Tensor:
    shifted = x - x.reduced("max", dim, keepdim=True)
    total = _sum(shifted.apply("exp"), dim, keepdim).apply("log")
    return total + x.reduced("max", dim, keepdim=bool(keepdim))


def _log_softmax(x: Tensor, dim: Value) -> Tensor:
    shifted = x - x.reduced("max", dim, keepdim=True)
    return shifted - _sum(shifted.apply("exp"), dim, keepdim=True).apply("log")


def _layer_norm(
    x: Tensor, normalized_shape: Value, weight: Value = None, bias: Value = None, eps: Value = 1e-5
) -> Tensor:  # fmt: skip
    dims = tuple(range(-len(_numbers(normalized_shape, "a shape")), 0))
    centred = x - _mean(x, dims, keepdim=True)
    spread = _var(x, dims, keepdim=True, correction=0) + eps
    return _scaled(centred * spread.apply("rsqrt"), weight, bias)


def _rms_norm(x: Tensor, normalized_shape: Value, weight: Value = None, eps: Value = None) -> Tensor:
    if eps is None:
        raise NoRuleError("`rms_norm` without eps")
    dims = tuple(range(-len(_numbers(normalized_shape, "a shape")), 0))
    return _scaled(x * (_mean(x * x, dims, keepdim=True) + eps).apply("rsqrt"), weight, None)


def _scaled(tensor: Tensor, weight: Value, bias: Value) -> Tensor:
    scaled = tensor if weight is None else tensor * weight
    return scaled if bias is None else scaled + bias


def _permute(x: Tensor, dims: Value) -> Tensor:
    order = [_dim(dim, len(x.shape)) for dim in _numbers(dims, "an order of dimensions")]
    if sorted(order) != list(range(len(x.shape))):
        raise NoRuleError(f"`permute` to {order}")
    places = [whole(order.index(dim), size) for dim, size in enumerate(x.shape)]
    return x.viewed(tuple(x.shape[dim] for dim in order), places)


def _transpose(x: Tensor, dim0: Value = 0, dim1: Value = -1) -> Tensor:
    rank = len(x.shape)
    one, other = _dim(dim0, rank), _dim(dim1, rank)
    return _permute(x, tuple({one: other, other: one}.get(dim, dim) for dim in range(rank)))


def _reshape(x: Tensor, shape: Value) -> Tensor:
    sizes = _numbers(shape, "a shape")
    known = max(1, math.prod(size for size in sizes if size != -1))
    return x.reshaped(tuple(math.prod(x.shape) // known if size == -1 else size for size in sizes))


def _flatten(x: Tensor, start_dim: Value = 0, end_dim: Value = -1) -> Tensor:
    start, end = _dim(start_dim, len(x.shape)), _dim(end_dim, len(x.shape))
    return x.reshaped((*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def _unsqueeze(x: Tensor, dim: Value) -> Tensor:
    at = _dim(dim, len(x.shape) + 1)
    return x.reshaped((*x.shape[:at], 1, *x.shape[at:]))


def _squeeze(x: Tensor, dim: Value = None) -> Tensor:
    dropped = {at for at in _dims(dim, len(x.shape)) if x.shape[at] == 1}
    return x.reshaped(tuple(size for at, size in enumerate(x.shape) if at not in dropped))


def _expand(x: Tensor, size: Value) -> Tensor:
    wanted = _numbers(size, "a size")
    skipped = len(wanted) - len(x.shape)
    kept = (*(1,) * skipped, *x.shape)
    return x.expanded(tuple(old if new == -1 else new for old, new in zip(kept, wanted, strict=True)))


def _repeat_interleave(x: Tensor, repeats: Value, dim: Value) -> Tensor:
    """Each position of a dimension several times in a row: a new dimension after it, merged with it."""
    at = _dim(dim, len(x.shape))
    (count,) = _numbers(repeats, "a number of repeats")
    before, behind = x.shape[: at + 1], x.shape[at + 1 :]
    repeated = x.reshaped((*before, 1, *behind)).expanded((*before, count, *behind))
    return repeated.reshaped((*before[:-1], before[-1] * count, *behind))


def _chunk(x: Tensor, chunks: Value, dim: Value = 0) -> Value:
    (count,) = _numbers(chunks, "a number of chunks")
    return _split(x, -(-x.shape[_dim(dim, len(x.shape))] // count), dim)


def _split(x: Tensor, split_size: Value, dim: Value = 0) -> Value:
    at = _dim(dim, len(x.shape))
    total, sizes = x.shape[at], _numbers(split_size, "sizes")
    if isinstance(split_size, int):
        sizes = tuple(min(split_size, total - start) for start in range(0, total, split_size))
    before: list[Item] = [(None, None, None)] * at
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return tuple(x.indexed([*before, (end - size, end, None)]) for size, end in zip(sizes, ends, strict=True))


def _unbind(x: Tensor, dim: Value = 0) -> Value:
    at = _dim(dim, len(x.shape))
    before: list[Item] = [(None, None, None)] * at
    return tuple(x.indexed([*before, position]) for position in range(x.shape[at]))


def _cat(tensors: Value, dim: Value = 0) -> Tensor:
    """Tensors of one shape concatenated, as in rotary embeddings: a new dimension selects among them."""
    found = [tensor for tensor in tensors if isinstance(tensor, Tensor)] if isinstance(tensors, tuple) else []
    if not found or len({tensor.shape for tensor in found}) > 1:
        raise NoRuleError("`cat` of tensors of different shapes")
    at, shape = _dim(dim, len(found[0].shape)), found[0].shape
    number = _arange(found[0].graph, len(found)).reshaped((len(found), *(1,) * (len(shape) - at)))
    chosen = _unsqueeze(found[-1], at)
    for place, tensor in reversed(list(enumerate(found[:-1]))):
        chosen = number.apply("eq", place).apply("where", _unsqueeze(tensor, at), chosen)
    return chosen.reshaped((*shape[:at], len(found) * shape[at], *shape[at + 1 :]))


def _masked_fill(x: Tensor, mask: Value, value: Value) -> Tensor:
    return x.graph.apply("where", mask, value, x)


def _triangle(op: str) -> Rule:
    """`tril` and `triu`: elements on the wrong side of a diagonal become 0."""

    def rule(x: Tensor, diagonal: Value = 0) -> Tensor:
        rows, columns = (_arange(x.graph, size) for size in x.shape[-2:])
        row = rows.reshaped((*rows.shape, 1)) + diagonal
        return columns.apply(op, row).apply("where", x, 0.0)

    return rule


def _arange(
    graph: Graph, start: Value, end: Value = None, step: Value = 1
) -> Tensor:  # fmt: skip
    start, end = (0, start) if end is None else (start, end)
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        raise NoRuleError(f"`arange` from {start!r} to {end!r} by {step!r}")
    numbers = graph.add(TensorNode("index", (len(range(start, end, step)),)))
    numbers = numbers if step == 1 else numbers * step
    return numbers if start == 0 else numbers + start


def _full(graph: Graph, size: Value, fill_value: Value) -> Tensor:
    return graph.tensor(fill_value).expanded(_numbers(size, "a size"))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Value = None,
    dropout_p: Value = 0.0,
    is_causal: Value = False,
    scale: Value = None,
    enable_gqa: Value = False,
) -> Tensor:
    """`scaled_dot_product_attention`: softmax(q k^T * scale + mask) v."""
    if dropout_p:
        raise NoRuleError("`scaled_dot_product_attention` with dropout")
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (_repeat_interleave(tensor, repeats, -3) for tensor in (key, value))
    scores = _matmul(query, _transpose(key, -2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows = _arange(query.graph, query.shape[-2]).reshaped((query.shape[-2], 1))
        scores = _arange(query.graph, key.shape[-2]).apply("le", rows).apply("where", scores, -math.inf)
    if isinstance(attn_mask, Tensor):
        is_truth = query.graph.is_truth(attn_mask)
        scores = attn_mask.apply("where", scores, -math.inf) if is_truth else scores + attn_mask
    return _matmul(_softmax(scores, -1), value)


Rule: TypeAlias = Callable[..., Value]


def _unary(op: str) -> Rule:
    return lambda x: x.apply(op)


def _binary(op: str) -> Rule:
    def rule(x: Tensor, other: Value, alpha: Value = 1) -> Tensor:
        return x.apply(op, other if alpha == 1 else x.graph.apply("mul", other, alpha))

    return rule


def _same(x: Tensor, *_: Value) -> Tensor:
    return x


_UNARY = "exp log log1p expm1 sqrt rsqrt abs neg tanh erf sigmoid silu relu"
_BINARY = "add sub mul div maximum minimum gt ge lt le eq ne logical_and logical_or floor_divide remainder"
_RULES: dict[str, Rule] = {
    **{name: _unary(name) for name in _UNARY.split()},
    **{name: _binary(name) for name in _BINARY.split()},
    **dict.fromkeys(("contiguous", "clone", "detach", "float", "to", "type_as"), _same),
    "bool": lambda x: x.apply("ne", 0.0),
    "logical_not": lambda x: x.apply("eq", 0.0),
    "square": lambda x: x * x,
    "reciprocal": lambda x: x.graph.apply("div", 1.0, x),
    "where": lambda condition, x, other: condition.apply("where", x, other),
    "pow": power,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "hardtanh": lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    "relu6": lambda x: _clamp(x, 0.0, 6.0),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "selu": lambda x: _elu(x, 1.6732632423543772) * 1.0507009873554805,
    "gelu": _gelu,
    "softplus": _softplus,
    "mish": lambda x: x * _softplus(x).apply("tanh"),
    "softsign": lambda x: x / (x.apply("abs") + 1.0),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "sum": _sum,
    "mean": _mean,
    "amax": lambda x, dim=None, keepdim=False: x.reduced("max", dim, keepdim=bool(keepdim)),
    "amin": lambda x, dim=None, keepdim=False: x.reduced("min", dim, keepdim=bool(keepdim)),
    "max": _extremum("max"),
    "min": _extremum("min"),
    "var": _var,
    "std": lambda *args, **kwargs: _var(*args, **kwargs).apply("sqrt"),
    "norm": _norm,
    "normalize": _normalize,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "reshape": _reshape,
    "view": _reshape,
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "view_as": lambda x, other: x.reshaped(other.shape),
    "expand_as": lambda x, other: _expand(x, other.shape),
    "repeat_interleave": _repeat_interleave,
    "chunk": _chunk,
    "split": _split,
    "unbind": _unbind,
    "masked_fill": _masked_fill,
    "tril": _triangle("le"),
    "triu": _triangle("ge"),
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
}
"""Rules by torch's name, without its namespace."""
_MADE: dict[str, Rule] = {
    "arange": _arange,
    "full": _full,
    "full_like": lambda graph, x, fill_value: _full(graph, x.shape, fill_value),
    "zeros_like": lambda graph, x: _full(graph, x.shape, 0.0),
    "ones_like": lambda graph, x: _full(graph, x.shape, 1.0),
    "zeros": lambda graph, size: _full(graph, size, 0.0),
    "ones": lambda graph, size: _full(graph, size, 1.0),
}
"""Functions that make a tensor of numbers; the graph is their first argument."""
_OF_SEVERAL: dict[str, Rule] = {"einsum": _einsum, "cat": _cat, "concat": _cat}
"""Functions with tensors in another place than the first argument."""
_KEYWORDS = {"axis": "dim", "min": "low", "max": "high"}
_IGNORED = frozenset({"dtype", "device", "inplace", "memory_format", "non_blocking"})
_ALIASES = {
    "multiply": "mul", "divide": "div", "subtract": "sub", "swish": "silu", "negative": "neg", "clip": "clamp",
    "swapaxes": "transpose", "bitwise_and": "logical_and", "bitwise_or": "logical_or", "baddbmm": "addmm",
}  # fmt: skip


def called(graph: Graph, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Return the result of a function or method of torch; a method's tensor is its first argument.

    Raises:
        NoRuleError: there is no rule for it, or not for these arguments.
    """
    short = name.rsplit(".", 1)[-1].removesuffix("_")
    short = _ALIASES.get(short, short)
    rule = _RULES.get(short) or _MADE.get(short) or _OF_SEVERAL.get(short)
    if rule is None:
        raise NoRuleError(f"the operation `{name}`")
    named = {_KEYWORDS.get(key, key): value for key, value in kwargs.items() if key not in _IGNORED}
    given: list[Value] = [graph, *args] if short in _MADE else list(args)
    if short in _RULES and given:
        given[0] = graph.tensor(given[0])
    try:
        inspect.signature(rule).bind(*given, **named)
    except TypeError:
        raise NoRuleError(f"`{name}` with {len(args)} arguments and {sorted(kwargs)}") from None
    return rule(*given, **named)
