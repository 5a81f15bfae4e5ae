"""Builds the graph while a reference is gone through, with shapes as torch would infer them."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
