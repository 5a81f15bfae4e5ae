"""Makes stages of a graph of tensors: one for each contraction and each value that one of them or an output needs.

A row stage takes in everything element-wise before it, and the reductions whose results it needs row by row; what does
not fit (a reduction along one dimension that is used along another) is stored by a stage of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, GraphBuilder, Node, NoRuleError, TensorInfo, joined
from actors.llm.offline.stages.axes import collapsed_contraction, collapsed_rows, refined
from actors.llm.offline.stages.index import Index, combined, row_major, substituted, whole
from actors.llm.offline.stages.ir import Contraction, RowStage, Stage, Staged
from actors.llm.offline.stages.tracing import TensorNode, View, identity
from actors.llm.offline.tracing import Shape

Raw = tuple[str, Index]
"""An access before there are axes: a tensor, and where in it, over the dimensions of a stage."""


class _Conflict(Exception):  # noqa: N818 - no error, but a way back
    """A reduction cannot be computed within the stage that uses it."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


def lowered(nodes: Sequence[TensorNode], outputs: Sequence[View], tensors: tuple[TensorInfo, ...]) -> Staged:
    """Return the stages that compute `outputs`, the views of nodes in the order of the output tensors.

    Raises:
        NoRuleError: an access that is not affine.
    """
    lowering = _Lowering(nodes, tensors)
    targets = [tensor for tensor in tensors if tensor.role == "output"]
    for view, target in zip(outputs, targets, strict=True):
        lowering.store_output(view, target)
    return Staged(tensors=(*tensors, *lowering.values), stages=tuple(lowering.stages))


class _Lowering:
    """One program under construction."""

    def __init__(self, nodes: Sequence[TensorNode], tensors: tuple[TensorInfo, ...]) -> None:
        self.nodes = nodes
        self.stages: list[Stage] = []
        self.values: list[TensorInfo] = []
        self._real = "float64" if any(tensor.dtype == "float64" for tensor in tensors) else "float32"
        self.stored: dict[int, str] = {}
        """Tensors that hold the results of nodes."""

    def store_output(self, view: View, target: TensorInfo) -> None:
        """Add the stages that write an output."""
        node = self.nodes[view.index]
        dense = combined(view.indices, row_major(node.shape)) == combined(identity(view.shape), row_major(view.shape))
        if node.op == "contract" and dense and view.index not in self.stored:
            self._contraction(view.index, target.name)
            return
        self._row_stage(view.index, view.shape, view.indices, target.name)

    def tensor_of(self, index: int) -> str:
        """Return the tensor that holds a node's result, adding the stage that computes it if there is none yet."""
        node = self.nodes[index]
        if node.op == "load":
            return node.name
        if index not in self.stored:
            name = f"%{len(self.values)}"
            self.values.append(TensorInfo(name=name, role="value", shape=node.shape, dtype=self._real))
            position = len(self.values) - 1
            if node.op == "contract":
                self._contraction(index, name)
            else:
                self._row_stage(index, node.shape, identity(node.shape), name)
            self.values[position] = msgspec.structs.replace(self.values[position], name=name)
            self.stored[index] = name
        return self.stored[index]

    def raw(self, index: int, at: Sequence[Index]) -> Raw:
        """Return where an element of a stored node is found."""
        return self.tensor_of(index), combined(at, row_major(self.nodes[index].shape))

    def _contraction(self, index: int, target: str) -> None:
        node = self.nodes[index]
        left, right = (self.raw(use.node, use.indices) for use in node.args)
        dims = (*node.shape, *node.summed)
        out = (target, combined(identity(node.shape), row_major(node.shape)))
        sizes, accesses = refined(dims, len(node.shape), [left, right, out])
        outer = sizes[0]
        stage = Contraction(
            outer=tuple(outer), summed=tuple(sizes[1]), left=accesses[0], right=accesses[1], target=accesses[2]
        )
        self.stages.append(collapsed_contraction(stage))

    def _row_stage(self, index: int, shape: Shape, at: tuple[Index, ...], target: str) -> None:
        while True:
            try:
                stage = _Rows(self, shape).stage(index, at, target)
            except _Conflict as conflict:
                if conflict.node == index:
                    raise NoRuleError("a reduction over dimensions that its result is used along") from conflict
                self.tensor_of(conflict.node)
            else:
                self.stages.append(stage)
                return


class _Rows:
    """One row stage under construction. Its dimensions are those of what it stores, then those it reduces besides."""

    def __init__(self, lowering: _Lowering, shape: Shape) -> None:
        self._lowering = lowering
        self._shape = shape
        self._dims = list(shape)
        self._columns: tuple[int, ...] | None = None
        """Dimensions that are reduced; None as long as there is no reduction."""
        self._graph = GraphBuilder()
        self._raws: list[Raw] = []
        self._raw_of: dict[int, int] = {}
        """By node of the graph: its access."""
        self._known: dict[tuple[int, tuple[Index, ...]], int] = {}

    def stage(self, index: int, at: tuple[Index, ...], target: str) -> RowStage:
        """Return the stage that stores a node.

        Raises:
            _Conflict: a reduction within must be stored first.
        """
        output = self._value(index, at)
        columns = self._columns
        if columns is None:
            wide = [dim for dim, size in enumerate(self._dims) if size > 1]
            columns = tuple(wide[-1:])
        rows = tuple(dim for dim in range(len(self._dims)) if dim not in columns)
        order = [*rows, *columns]
        places = [whole(order.index(dim), size) for dim, size in enumerate(self._dims)]
        raws = [(name, substituted(raw, places)) for name, raw in self._raws]
        out = substituted(combined(identity(self._shape), row_major(self._shape)), places)
        sizes, accesses = refined([self._dims[dim] for dim in order], len(rows), [*raws, (target, out)])
        split = len(sizes[0])
        nodes: list[Node] = []
        for position, node in enumerate(self._graph.nodes):
            access = accesses[self._raw_of[position]] if position in self._raw_of else None
            if access is not None:
                on_row, on_column = any(access.strides[:split]), any(access.strides[split:])
                kind = joined(("row" if on_row else "scalar", "vector" if on_column else "scalar"))
            elif node.op in REDUCTIONS:
                kind = "row"
            else:
                kind = joined(tuple(nodes[arg].kind for arg in node.args))
            nodes.append(msgspec.structs.replace(node, kind=kind, access=access, value=0.0 if access else node.value))
        stage = RowStage(
            rows=tuple(sizes[0]), columns=tuple(sizes[1]), nodes=tuple(nodes), output=output, target=accesses[-1]
        )
        return collapsed_rows(stage)

    def _value(self, index: int, at: tuple[Index, ...]) -> int:
        """Return a node's element at a place, as a node of the row graph."""
        key = (index, at)
        if key not in self._known:
            self._known[key] = self._added(index, at)
        return self._known[key]

    def _added(self, index: int, at: tuple[Index, ...]) -> int:
        node = self._lowering.nodes[index]
        if node.op == "const":
            return self._graph.const(node.value)
        if node.op == "index":
            return self._read("index", ("", at[0]))
        if node.op in {"load", "contract"} or index in self._lowering.stored:
            return self._read("load", self._lowering.raw(index, at))
        if node.op in REDUCTIONS:
            return self._reduction(index, node, at)
        args = [self._value(use.node, tuple(substituted(item, at) for item in use.indices)) for use in node.args]
        return self._graph.apply(node.op, *args)

    def _read(self, op: str, raw: Raw) -> int:
        if raw not in self._raws:
            self._raws.append(raw)
        number = self._raws.index(raw)
        index = self._graph.add(Node(op, name=raw[0], value=float(number)))
        self._raw_of[index] = number
        return index

    def _reduction(self, index: int, node: TensorNode, at: tuple[Index, ...]) -> int:
        wide = [size for size in node.summed if size > 1]
        used = {term.dim for item in at for term in item.terms}
        columns = iter(self._columns_for(index, wide, used) if wide else ())
        reduced = [whole(next(columns), size) if size > 1 else Index() for size in node.summed]
        (use,) = node.args
        arg = self._value(use.node, tuple(substituted(item, [*at, *reduced]) for item in use.indices))
        return self._graph.reduce(node.op, arg) if wide else arg

    def _columns_for(self, index: int, wide: list[int], used: set[int]) -> tuple[int, ...]:
        """Return the dimensions of the stage that a reduction goes over."""
        if self._columns is None:
            free = tuple(dim for dim, size in enumerate(self._shape) if size > 1 and dim not in used)
            if free and [self._shape[dim] for dim in free] != wide:
                raise _Conflict(index)
            if not free:
                free = tuple(range(len(self._dims), len(self._dims) + len(wide)))
                self._dims += wide
            self._columns = free
        if used & set(self._columns) or [self._dims[dim] for dim in self._columns] != wide:
            raise _Conflict(index)
        return self._columns
