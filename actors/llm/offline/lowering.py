"""Tensors are lowered to stages, and stages joined to groups.

A row stage includes all element-wise operations before it, and the reductions that it needs row by row. Other
reductions (along one dimension and used along another) are stages of their own. Stages of a group number their rows
alike, and read each other's results only in their current row, so the group runs block by block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from actors.llm.offline.stages import (
    REDUCTIONS,
    Access,
    Index,
    Node,
    NoRuleError,
    Program,
    Stage,
    TensorInfo,
    combined,
    identity,
    joined,
    refined,
    row_major,
    substituted,
    whole,
)
from actors.llm.offline.tensors import Shape, Tensor, TensorNode

_Raw: TypeAlias = tuple[str, Index]
"""An access before axes are chosen: a tensor, and the position in it over the dimensions of a stage."""


class _Conflict(Exception):  # noqa: N818 - no error, but a way back
    """A reduction cannot be computed within the stage that uses it."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


def lowered(nodes: Sequence[TensorNode], outputs: Sequence[Tensor], tensors: tuple[TensorInfo, ...]) -> Program:
    """Return the stages that compute `outputs`, in the order of the output tensors.

    Raises:
        NoRuleError: an access is not affine.
    """
    lowering = _Lowering(nodes, Program(tensors=tensors, stages=()).real)
    targets = [tensor for tensor in tensors if tensor.role == "output"]
    for tensor, target in zip(outputs, targets, strict=True):
        lowering.store_output(tensor, target)
    return Program(tensors=(*tensors, *lowering.values), stages=tuple(lowering.stages))


class _Lowering:
    """One program that is being lowered."""

    def __init__(self, nodes: Sequence[TensorNode], real: str) -> None:
        self.nodes = nodes
        self.stages: list[Stage] = []
        self.values: list[TensorInfo] = []
        self._real = real
        self.stored: dict[int, str] = {}
        """Tensor with the result of each stored node."""

    def store_output(self, tensor: Tensor, target: TensorInfo) -> None:
        """Add the stages that write an output."""
        node = self.nodes[tensor.node]
        place = combined(tensor.indices, row_major(node.shape))
        if node.op == "contract" and place == combined(identity(tensor.shape), row_major(tensor.shape)):
            self._contraction(node, target.name)
        else:
            self._row_stage(tensor.node, tensor.shape, tensor.indices, target.name)

    def raw(self, index: int, at: Sequence[Index]) -> _Raw:
        """Return the access to an element of a node's result, adding the stage that stores it if there is none yet."""
        node = self.nodes[index]
        return node.name or self.tensor_of(index), combined(at, row_major(node.shape))

    def tensor_of(self, index: int) -> str:
        """Return the tensor with a node's result, adding the stage that computes it if there is none yet."""
        if index not in self.stored:
            node = self.nodes[index]
            name = f"%{len(self.values)}"
            self.values.append(TensorInfo(name=name, role="value", shape=node.shape, dtype=self._real))
            if node.op == "contract":
                self._contraction(node, name)
            else:
                self._row_stage(index, node.shape, identity(node.shape), name)
            self.stored[index] = name
        return self.stored[index]

    def _contraction(self, node: TensorNode, target: str) -> None:
        raws = [self.raw(use.node, use.indices) for use in node.args]
        raws.append((target, combined(identity(node.shape), row_major(node.shape))))
        rows, columns, (left, right, to) = refined((*node.shape, *node.summed), len(node.shape), raws)
        nodes = (
            Node("load", kind="full", access=left),
            Node("load", kind="full", access=right),
            Node("mul", (0, 1), "full"),
            Node("sum", (2,), "row"),
        )
        stage = Stage(rows=rows, columns=columns, nodes=nodes, output=3, target=to, is_contraction=True)
        self.stages.append(stage.collapsed())

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
    """One row stage that is being built. Its dimensions are those of the stored value, then those that it reduces."""

    def __init__(self, lowering: _Lowering, shape: Shape) -> None:
        self._lowering = lowering
        self._shape = shape
        self._dims = list(shape)
        self._columns: tuple[int, ...] | None = None
        """Dimensions that are reduced; None as long as there is no reduction."""
        self._nodes: list[Node] = []
        self._place_of: dict[Node, int] = {}
        self._raws: list[_Raw] = []
        self._raw_of: dict[int, int] = {}
        """Access of each node."""
        self._known: dict[tuple[int, tuple[Index, ...]], int] = {}

    def stage(self, index: int, at: tuple[Index, ...], target: str) -> Stage:
        """Return the stage that stores a node.

        Raises:
            _Conflict: a reduction within must be stored first.
        """
        output = self._value(index, at)
        columns = self._columns
        if columns is None:
            columns = tuple([dim for dim, size in enumerate(self._dims) if size > 1][-1:])
        order = [*(dim for dim in range(len(self._dims)) if dim not in columns), *columns]
        places = [whole(order.index(dim), size) for dim, size in enumerate(self._dims)]
        raws = [(name, substituted(raw, places)) for name, raw in self._raws]
        out = substituted(combined(identity(self._shape), row_major(self._shape)), places)
        dims = [self._dims[dim] for dim in order]
        rows, across, accesses = refined(dims, len(order) - len(columns), [*raws, (target, out)])
        nodes: list[Node] = []
        for position, node in enumerate(self._nodes):
            access = accesses[self._raw_of[position]] if position in self._raw_of else None
            if access is not None:
                on_row, on_column = any(access.strides[: len(rows)]), any(access.strides[len(rows) :])
                kind = joined(("row" if on_row else "scalar", "vector" if on_column else "scalar"))
                nodes.append(Node(node.op, kind=kind, access=access))
            else:
                kind = "row" if node.op in REDUCTIONS else joined(nodes[arg].kind for arg in node.args)
                nodes.append(msgspec.structs.replace(node, kind=kind))
        stage = Stage(rows=rows, columns=across, nodes=tuple(nodes), output=output, target=accesses[-1])
        return stage.collapsed()

    def _value(self, index: int, at: tuple[Index, ...]) -> int:
        """Return a node's element at a place, as a node of the stage."""
        key = (index, at)
        if key not in self._known:
            self._known[key] = self._added(index, at)
        return self._known[key]

    def _added(self, index: int, at: tuple[Index, ...]) -> int:
        node = self._lowering.nodes[index]
        if node.op == "const":
            return self._add(Node("const", value=node.value))
        if node.op == "index":
            return self._read("index", ("", at[0]))
        if node.op in {"load", "contract"} or index in self._lowering.stored:
            return self._read("load", self._lowering.raw(index, at))
        if node.op in REDUCTIONS:
            return self._reduction(index, node, at)
        args = [self._value(use.node, tuple(substituted(item, at) for item in use.indices)) for use in node.args]
        return self._add(Node(node.op, tuple(args)))

    def _add(self, node: Node) -> int:
        """Return the position of a node. Equal operations on equal operands are one node."""
        if node not in self._place_of:
            self._place_of[node] = len(self._nodes)
            self._nodes.append(node)
        return self._place_of[node]

    def _read(self, op: str, raw: _Raw) -> int:
        if raw not in self._raws:
            self._raws.append(raw)
        number = self._raws.index(raw)
        index = self._add(Node(op, value=float(number)))
        self._raw_of[index] = number
        return index

    def _reduction(self, index: int, node: TensorNode, at: tuple[Index, ...]) -> int:
        wide = [size for size in node.summed if size > 1]
        used = {term.dim for item in at for term in item.terms}
        columns = iter(self._columns_for(index, wide, used) if wide else ())
        reduced = [whole(next(columns), size) if size > 1 else Index() for size in node.summed]
        (use,) = node.args
        arg = self._value(use.node, tuple(substituted(item, [*at, *reduced]) for item in use.indices))
        return self._add(Node(node.op, (arg,))) if wide else arg

    def _columns_for(self, index: int, wide: list[int], used: set[int]) -> tuple[int, ...]:
        """Return the stage's dimensions over which a reduction sums."""
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


_FEW_ROWS = 8
_SHARE = 64


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Stages to run together, one after another for each block of rows."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, at least one. They are the first axes of every stage."""
    stages: tuple[Stage, ...]
    local: frozenset[str]
    """Values that nothing outside the group reads: only one row of them is needed at a time."""


def grouped(program: Program, *, fuse: bool) -> tuple[Group, ...]:
    """Return the stages in groups, in order. Without `fuse` each stage is a group of its own."""
    found: list[list[Stage]] = []
    for stage in program.stages:
        if fuse and found and _can_join([*found[-1], stage]):
            found[-1].append(stage)
        else:
            found.append([stage])
    return tuple(_group(stages, program, found) for stages in found)


def _can_join(stages: list[Stage]) -> bool:
    for rows in _row_counts(stages):
        try:
            aligned = _aligned(stages, rows)
        except NoRuleError:
            continue
        if aligned is not None and _stays_in_row(aligned):
            return True
    return False


def _row_counts(stages: list[Stage]) -> list[int]:
    """Return the numbers of rows that stages can have in common, at most one."""
    fixed = {math.prod(stage.rows) for stage in stages if not stage.is_contraction}
    if fixed:
        return list(fixed) if len(fixed) == 1 else []
    return [math.prod(stage.rows[:-1]) for stage in stages][:1]


def _aligned(stages: list[Stage], rows: int) -> list[tuple[Stage, int]] | None:
    """Return the stages with the same row axes, and the number of those; None if there are none.

    Raises:
        NoRuleError: a stage's axes cannot be cut where another one's are.
    """
    cut: list[Stage] = []
    for stage in stages:
        total = math.prod(stage.rows)
        if total % rows:
            return None
        cut.append(stage.split(total // rows))
    leading = [stage.rows[: _leading(stage, rows)] for stage in cut]
    places = {math.prod(sizes[at:]) for sizes in leading for at in range(len(sizes))}
    chain = sorted(places | {1, rows})
    if any(high % low for low, high in itertools.pairwise(chain)):
        return None
    found: list[tuple[Stage, int]] = []
    for stage in cut:
        columns = math.prod(stage.rows) // rows
        for place in chain[1:-1]:
            stage = stage.split(place * columns)  # noqa: PLW2901 - cut once per place
        found.append((stage, _leading(stage, rows)))
    return found


def _leading(stage: Stage, rows: int) -> int:
    """Return the number of a stage's first axes that make up the rows of a group."""
    return next(count for count in range(len(stage.rows) + 1) if math.prod(stage.rows[:count]) == rows)


def row_length(stage: Stage, count: int) -> int:
    """Return the elements that a stage stores per row of a group, of which the first `count` axes number the rows."""
    if stage.is_contraction:
        return math.prod(stage.rows[count:])
    return math.prod(stage.columns) if stage.stores_columns else 1


def _stays_in_row(aligned: list[tuple[Stage, int]]) -> bool:
    """Return True if each stage reads results of earlier ones only in its own row."""
    written: dict[str, Access | None] = {}
    for stage, count in aligned:
        for access in stage.reads:
            if access.name in written and not _is_same_row(written[access.name], access, stage, count):
                return False
        length = row_length(stage, count)
        dense = tuple(stride * length for stride in row_major(stage.rows[:count]))
        is_dense = stage.target.strides[:count] == dense and stage.target.offset == 0
        written[stage.target.name] = stage.target if is_dense else None
    return True


def _is_same_row(target: Access | None, read: Access, stage: Stage, count: int) -> bool:
    if target is None or read.offset or read.strides[:count] != target.strides[:count]:
        return False
    inner = zip(read.strides[count:], stage.axes[count:], strict=True)
    length = target.strides[count - 1] if count else math.inf
    return sum(stride * (size - 1) for stride, size in inner) < length


def _group(stages: list[Stage], program: Program, groups: list[list[Stage]]) -> Group:
    outside = {access.name for others in groups if others is not stages for stage in others for access in stage.reads}
    values = {tensor.name for tensor in program.tensors if tensor.role == "value"}
    local = frozenset({stage.target.name for stage in stages} & values) - outside
    if len(stages) == 1:
        stages = [_shared_out(stages[0])]
    for rows in _row_counts(stages):
        aligned = _aligned(stages, rows)
        if aligned is not None:
            count = aligned[0][1]
            found = [stage if count else stage.with_axis(0) for stage, _ in aligned]
            return Group(rows=found[0].rows[: max(count, 1)], stages=tuple(found), local=local)
    raise NoRuleError("stages whose rows do not fit each other")


def _shared_out(stage: Stage) -> Stage:
    """Split the columns of a contraction with few rows, so that threads have something to share."""
    if not stage.is_contraction or not stage.rows or math.prod(stage.rows[:-1]) >= _FEW_ROWS:
        return stage
    share = next((size for size in range(_SHARE, 0, -1) if stage.rows[-1] % size == 0), 1)
    return stage.split(share) if 1 < share < stage.rows[-1] else stage


_NEGLIGIBLE = -1e30
"""Programs write this for minus infinity; its exponential is 0 next to any ordinary maximum."""
_NEUTRAL = {"sum": 0.0, "max": -math.inf, "min": math.inf}


class Bound(msgspec.Struct, frozen=True):
    """Columns from a place on are skipped: the whole part of node `place`, plus `more`."""

    place: int
    """A node of kind row or scalar."""
    more: int
    """1 if the column at the place itself is used."""


def bound_of(stage: Stage) -> Bound | None:
    """Return the columns that a stage can skip; None if there are none that are known here.

    A column can be skipped if the stage stores 0 there and no reduction is changed by it. Each node's value in a masked
    column follows from the masked one: the maximum of the other columns is finite, so exp(-inf - maximum) is 0, and so
    is every product of that. Fully masked rows must be computed in full.
    """
    for index, node in enumerate(stage.nodes):
        found = _masking(stage, node)
        if found is not None and _is_left_out(stage, index):
            return found
    return None


def _masking(stage: Stage, node: Node) -> Bound | None:
    """Read `where(column > place, -inf, x)` and the like."""
    if node.op != "where":
        return None
    condition, *cases = (stage.nodes[arg] for arg in node.args)
    for case, beyond in zip(cases, (True, False), strict=True):
        if case.op == "const" and case.value <= _NEGLIGIBLE:
            return _compared(stage, condition, beyond=beyond)
    return None


def _compared(stage: Stage, condition: Node, *, beyond: bool) -> Bound | None:
    """Return the place from which a condition holds (`beyond`) or fails."""
    if condition.op == "eq" and stage.nodes[condition.args[1]] == Node("const"):
        return _compared(stage, stage.nodes[condition.args[0]], beyond=not beyond)
    mirrored = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
    if condition.op not in mirrored:
        return None
    op, (left, right) = condition.op, condition.args
    if not _is_column(stage, left):
        op, left, right = mirrored[op], right, left
    wanted = {"gt": 1, "ge": 0} if beyond else {"le": 1, "lt": 0}
    if op not in wanted or not _is_column(stage, left) or stage.nodes[right].kind not in {"row", "scalar"}:
        return None
    return Bound(right, wanted[op])


def _is_column(stage: Stage, index: int) -> bool:
    node = stage.nodes[index]
    along = (*(0,) * len(stage.rows), 1)
    return node.op == "index" and len(stage.columns) == 1 and node.access == Access("", 0, along)


def _is_left_out(stage: Stage, masked: int) -> bool:
    found: list[float | None] = []
    for index, node in enumerate(stage.nodes):
        args = [found[arg] for arg in node.args]
        if index == masked:
            found.append(-math.inf)
        elif node.op in REDUCTIONS:
            if stage.nodes[node.args[0]].kind in {"full", "vector"} and args[0] != _NEUTRAL[node.op]:
                return False
            found.append(None)
        else:
            found.append(_propagated(node.op, args))
    return found[stage.output] == 0.0


def _propagated(op: str, args: list[float | None]) -> float | None:
    """Return an operation's value in a masked column; None: any finite number."""
    match op, args:
        case "exp", [value] if value == -math.inf:
            return 0.0
        case (("add" | "sub"), [value, None]) if value == -math.inf:
            return -math.inf
        case "add", [None, value] if value == -math.inf:
            return -math.inf
        case "mul", [left, right] if 0.0 in {left, right}:
            return 0.0
        case "div", [left, None] if left == 0.0:
            return 0.0
        case _:
            return None
