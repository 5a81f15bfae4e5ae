"""Builds a graph of whole tensors while a reference is gone through: what is computed, before stages are made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import NoRuleError, TensorInfo
from actors.llm.offline.stages.index import Index, combined, part, row_major, substituted, whole
from actors.llm.offline.tracing import FLOATING, Item, Shape, Traced, Value, broadcast, reduced_dimensions

COUNTING = frozenset({"int64", "int32", "int16", "int8", "uint8", "bool"})

TRUTHS = frozenset({"gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or"})


class Use(msgspec.Struct, frozen=True):
    """An element of an operand: the node, and where along each of its dimensions."""

    node: int
    indices: tuple[Index, ...]
    """Over the dimensions of the node that uses it, then over those that it sums over."""


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


class View(Traced, frozen=True):
    """A tensor of the reference: a node, seen through a view."""

    indices: tuple[Index, ...] = ()
    """Along each dimension of the node, over the dimensions of `shape`."""


def identity(shape: Shape) -> tuple[Index, ...]:
    """Return where each element of a tensor is found in the tensor itself."""
    return tuple(whole(dim, size) for dim, size in enumerate(shape))


class StagedTracer:
    """A graph of tensors under construction. What `Tracer` does for rows, without its restrictions; and views."""

    def __init__(self) -> None:
        self.nodes: list[TensorNode] = []
        self._known: dict[TensorNode, int] = {}
        self._dtypes: dict[str, str] = {}

    def load(self, tensor: TensorInfo) -> View:
        """Add an input or a parameter.

        Raises:
            NoRuleError: its dtype is not covered.
        """
        if tensor.dtype not in FLOATING | COUNTING:
            raise NoRuleError(f"tensor `{tensor.name}` of dtype {tensor.dtype}")
        self._dtypes[tensor.name] = tensor.dtype
        return self._seen(self._add(TensorNode("load", tensor.shape, name=tensor.name)))

    def is_truth(self, view: View) -> bool:
        """Say whether a tensor holds truth values: a comparison, or a tensor of dtype bool."""
        node = self.nodes[view.index]
        return node.op in TRUTHS or (node.op == "load" and self._dtypes[node.name] == "bool")

    def arange(self, size: int) -> View:
        """Add the numbers from 0 to below `size`."""
        return self._seen(self._add(TensorNode("index", (size,))))

    def unary(self, op: str, value: Value) -> View:
        """Add an element-wise operation on one tensor."""
        return self.elementwise(op, value)

    def binary(self, op: str, left: Value, right: Value) -> View:
        """Add an element-wise operation on two tensors, or a tensor and a number."""
        return self.elementwise(op, left, right)

    def elementwise(self, op: str, *values: Value) -> View:
        """Add an element-wise operation.

        Raises:
            NoRuleError: the operands do not broadcast.
        """
        views = [self.tensor(value) for value in values]
        shape: Shape = ()
        for view in views:
            shape = broadcast(shape, view.shape)
        uses = tuple(self._use(self.expanded(view, shape)) for view in views)
        return self._seen(self._add(TensorNode(op, shape, args=uses)))

    def reduce(self, op: str, value: Value, dims: Value, keepdim: bool) -> View:
        """Add a reduction; `dims` as torch takes it."""
        view = self.tensor(value)
        reduced = reduced_dimensions(dims, len(view.shape))
        kept = [dim for dim in range(len(view.shape)) if dim not in reduced]
        order = [*kept, *reduced]
        places = [whole(order.index(dim), size) for dim, size in enumerate(view.shape)]
        indices = tuple(substituted(index, places) for index in view.indices)
        shape = tuple(view.shape[dim] for dim in kept)
        summed = tuple(view.shape[dim] for dim in reduced)
        found = self._seen(self._add(TensorNode(op, shape, summed, (Use(view.index, indices),))))
        if not keepdim:
            return found
        return self.reshaped(found, tuple(1 if dim in reduced else size for dim, size in enumerate(view.shape)))

    def contract(self, left: Value, right: Value, terms: tuple[Sequence[str], Sequence[str], Sequence[str]]) -> View:
        """Add a sum of products; `terms` names the dimensions of both operands and of the result, as in einsum.

        Raises:
            NoRuleError: sizes do not fit, or a name stands twice in one operand.
        """
        views = (self.tensor(left), self.tensor(right))
        sizes: dict[str, int] = {}
        for view, names in zip(views, terms, strict=False):
            if len(names) != len(view.shape) or len(set(names)) != len(names):
                raise NoRuleError(f"an einsum of {view.shape} over the dimensions {''.join(names)}")
            for name, size in zip(names, view.shape, strict=True):
                if size != 1 and sizes.get(name, 1) not in {1, size}:
                    raise NoRuleError(f"a product of tensors of shapes {views[0].shape} and {views[1].shape}")
                sizes[name] = max(size, sizes.get(name, 1))
        order = [*terms[2], *(name for name in sizes if name not in terms[2])]
        uses = tuple(
            Use(
                view.index,
                tuple(
                    substituted(
                        index,
                        [
                            whole(order.index(name), size) if size > 1 else Index()
                            for name, size in zip(names, view.shape, strict=True)
                        ],
                    )
                    for index in view.indices
                ),
            )
            for view, names in zip(views, terms, strict=False)
        )
        count = len(terms[2])
        shape = tuple(sizes[name] for name in order)
        return self._seen(self._add(TensorNode("contract", shape[:count], shape[count:], uses)))

    def tensor(self, value: Value) -> View:
        """Return a tensor; numbers become constants.

        Raises:
            NoRuleError: it is neither.
        """
        match value:
            case View():
                return value
            case bool() | int() | float():
                return self._seen(self._add(TensorNode("const", value=float(value))))
            case _:
                raise NoRuleError(f"{value!r} where a tensor or a number is needed")

    def reduced_count(self, value: Value, dims: Value) -> int:
        """Return how many elements one result of a reduction comes from."""
        shape = self.tensor(value).shape
        return math.prod(shape[dim] for dim in reduced_dimensions(dims, len(shape)))

    def reshaped(self, value: Value, shape: Shape) -> View:
        """Return a tensor with its elements in the same order and another shape.

        Raises:
            NoRuleError: the number of elements differs.
        """
        view = self.tensor(value)
        if math.prod(shape) != math.prod(view.shape):
            raise NoRuleError(f"a tensor of shape {view.shape} as one of shape {shape}")
        flat = combined(identity(shape), row_major(shape))
        places = [part(flat, stride, size) for stride, size in zip(row_major(view.shape), view.shape, strict=True)]
        return self.viewed(view, shape, places)

    def viewed(self, view: View, shape: Shape, places: Sequence[Index]) -> View:
        """Return a view of a view; `places` says where along each dimension of `view` an element is found."""
        indices = tuple(substituted(index, places) for index in view.indices)
        return View(view.index, shape, indices)

    def expanded(self, view: View, shape: Shape) -> View:
        """Return a tensor repeated along new dimensions and along those of size 1."""
        skipped = len(shape) - len(view.shape)
        places = [whole(skipped + dim, size) for dim, size in enumerate(view.shape)]
        return self.viewed(view, shape, places)

    def indexed(self, value: Traced, items: Sequence[Item]) -> View:
        """Return `value[items]`: new dimensions, single positions and slices.

        Raises:
            NoRuleError: a position lies outside.
        """
        view = self.tensor(value)
        taken = sum(item is not None and item != "..." for item in items)
        if taken > len(view.shape):
            raise NoRuleError(f"{taken} indices into a tensor of shape {view.shape}")
        rest: list[Item] = [(None, None, None)] * (len(view.shape) - taken)
        at = items.index("...") if "..." in items else len(items)
        shape: list[int] = []
        places: list[Index] = []
        for item in [*items[:at], *rest, *items[at + 1 :]]:
            if item is None:
                shape.append(1)
                continue
            size = view.shape[len(places)]
            offset, step, count = _span(item, size)
            index = combined([whole(len(shape), count)], [step])
            places.append(Index(index.offset + offset, index.terms))
            if isinstance(item, tuple):
                shape.append(count)
        return self.viewed(view, tuple(shape), places)

    def _use(self, view: View) -> Use:
        return Use(view.index, view.indices)

    def _seen(self, index: int) -> View:
        shape = self.nodes[index].shape
        return View(index, shape, identity(shape))

    def _add(self, node: TensorNode) -> int:
        index = self._known.get(node)
        if index is None:
            index = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return index


def _span(item: Item, size: int) -> tuple[int, int, int]:
    """Return offset, step and number of the positions that an item takes of a dimension."""
    if isinstance(item, int):
        if not -size <= item < size:
            raise NoRuleError(f"position {item} of a dimension of size {size}")
        return item % size, 1, 1
    if not isinstance(item, tuple):
        raise NoRuleError("an ellipsis that stands twice")
    positions = range(size)[slice(*item)]
    if len(positions) == 0 or positions.step < 1:
        raise NoRuleError("an empty or backward slice")
    return positions.start, positions.step, len(positions)
