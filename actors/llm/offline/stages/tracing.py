"""Tracing of staged programs, and their lowering to contractions and row stages.

Stages of a group number their rows alike, and read each other's results only in the row that they are at.

A row stage takes in everything element-wise before it, and the reductions whose results it needs row by row; what does
not fit (a reduction along one dimension that is used along another) is stored by a stage of its own.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, GraphBuilder, Node, NoRuleError, TensorInfo, joined
from actors.llm.offline.stages.ir import (
    Contraction,
    Index,
    RowStage,
    Stage,
    Staged,
    collapsed_contraction,
    collapsed_rows,
    combined,
    part,
    refined,
    row_major,
    split_outer,
    substituted,
    whole,
)
from actors.llm.offline.tracing import (
    FLOATING,
    RULES,
    Arguments,
    Item,
    Shape,
    Signature,
    Traced,
    Tracer,
    Value,
    broadcast,
    reduced_dimensions,
)

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


Names = Sequence[str]


def contracted(tracer: StagedTracer, left: View, right: View, terms: tuple[Names, Names, Names]) -> View:
    """Return the sum over the dimensions that `terms[2]` does not name; an element-wise product if there are none."""
    if set(terms[0]) | set(terms[1]) <= set(terms[2]):
        return tracer.binary("mul", _arranged(tracer, left, terms[0], terms[2]), _arranged(tracer, right, *terms[1:]))
    return tracer.contract(left, right, terms)


def product(tracer: StagedTracer, left_value: Value, right_value: Value) -> View:
    """Return `torch.matmul` of two tensors."""
    left, right = tracer.tensor(left_value), tracer.tensor(right_value)
    if not left.shape or not right.shape:
        raise NoRuleError("a matrix product with a number")
    rank = max(len(left.shape), len(right.shape), 2)
    batch = [f"batch{dim}" for dim in range(rank - 2)]
    ones = [[*batch, "m", "k"][-len(left.shape) :], [*batch, "k", "n"][-len(right.shape) :]]
    if len(left.shape) == 1:
        ones[0] = ["k"]
    if len(right.shape) == 1:
        ones[1] = ["k"]
    out = [*batch, *(["m"] if len(left.shape) > 1 else []), *(["n"] if len(right.shape) > 1 else [])]
    return contracted(tracer, left, right, (ones[0], ones[1], out))


def einsum(tracer: StagedTracer, equation: str, operands: Sequence[View]) -> View:
    """Return `torch.einsum`; more than two operands from left to right.

    Raises:
        NoRuleError: a dimension stands twice in an operand, or the equation does not fit.
    """
    before, arrow, after = equation.replace(" ", "").partition("->")
    inputs = before.split(",")
    if len(inputs) != len(operands):
        raise NoRuleError(f"the equation {equation!r} for {len(operands)} operands")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    inputs = [_spelled(names, len(view.shape), spare) for names, view in zip(inputs, operands, strict=True)]
    if arrow:
        wide = max((len(view.shape) - len(names.replace("...", "")) for names, view in zip(before.split(","), operands,
                   strict=True) if "..." in names), default=0)  # fmt: skip
        out = after.replace("...", "".join(reversed(spare[:wide])))
    else:
        letters = "".join(inputs)
        out = "".join(letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
    view, names = _reduced(tracer, operands[0], inputs[0], inputs[1:], out)
    for position, (other, others) in enumerate(zip(operands[1:], inputs[1:], strict=True), start=2):
        later = set("".join(inputs[position:])) | set(out)
        shared = [*dict.fromkeys([*names, *others])]
        kept = list(out) if position == len(inputs) else [name for name in shared if name in later]
        view, names = contracted(tracer, view, other, (names, list(others), kept)), kept
    return _arranged(tracer, view, names, list(out))


def _reduced(tracer: StagedTracer, view: View, names: str, others: Sequence[str], out: str) -> tuple[View, list[str]]:
    """Sum a first operand over what neither another one nor the result names."""
    if len(set(names)) != len(names):
        raise NoRuleError(f"an einsum with the diagonal {names!r}")
    needed = set("".join(others)) | set(out)
    alone = tuple(dim for dim, name in enumerate(names) if name not in needed)
    if not alone:
        return view, list(names)
    return tracer.reduce("sum", view, alone, keepdim=False), [name for name in names if name in needed]


def _spelled(names: str, rank: int, spare: list[str]) -> str:
    """Return the names of an operand's dimensions with letters for its ellipsis."""
    count = rank - len(names.replace("...", ""))
    return names.replace("...", "".join(reversed(spare[:count])))


def _arranged(tracer: StagedTracer, view: View, names: Names, order: Names) -> View:
    """Return a view with its dimensions in another order; those that it does not have are of size 1."""
    if list(names) == list(order):
        return view
    shape = tuple(view.shape[list(names).index(name)] if name in names else 1 for name in order)
    places = [whole(list(order).index(name), size) for name, size in zip(names, view.shape, strict=True)]
    return tracer.viewed(view, shape, places)


_FEW_ROWS = 8
_SHARE = 64


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Stages to run together, one after another for each block of rows."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first; at least one. They are the first axes of every stage."""
    stages: tuple[Stage, ...]
    local: frozenset[str]
    """Values that nothing outside of the group reads: one row of them is needed at a time."""


def grouped(program: Staged, *, fuse: bool) -> tuple[Group, ...]:
    """Return the stages in groups, in order; without `fuse` each stage is a group of its own."""
    found: list[list[Stage]] = []
    for stage in program.stages:
        found[-1:] = _joined(found[-1] if found else [], stage) if fuse else [*found[-1:], [stage]]
    return tuple(_finished(stages, program, index, found) for index, stages in enumerate(found))


def rows_of(stage: Stage) -> tuple[int, ...]:
    """Return the sizes of the axes that number a stage's rows."""
    return stage.rows if isinstance(stage, RowStage) else stage.outer


def stride_in(access: Access, count: int) -> tuple[int, ...]:
    """Return the strides along the first axes."""
    return access.strides[:count]


def _joined(group: list[Stage], stage: Stage) -> list[list[Stage]]:
    """Return a group with the stage added, or both apart."""
    if not group:
        return [[stage]]
    for rows in _row_counts([*group, stage]):
        try:
            aligned = _aligned([*group, stage], rows)
        except NoRuleError:
            continue
        if aligned is not None and _stays_in_row(aligned):
            return [[*group, stage]]
    return [group, [stage]]


def _row_counts(stages: list[Stage]) -> list[int]:
    """Return the numbers of rows that stages can have in common, likeliest first."""
    fixed = {math.prod(stage.rows) for stage in stages if isinstance(stage, RowStage)}
    if fixed:
        return list(fixed) if len(fixed) == 1 else []
    return [math.prod(stage.outer[:-1]) for stage in stages if isinstance(stage, Contraction)][:1]


def _aligned(stages: list[Stage], rows: int) -> list[tuple[Stage, int]] | None:
    """Return the stages with the same row axes, and how many those are; None if there are none.

    Raises:
        NoRuleError: a stage's axes cannot be cut where another one's are.
    """
    cut: list[Stage] = []
    for stage in stages:
        total = math.prod(rows_of(stage))
        if total % rows:
            return None
        cut.append(split_outer(stage, total // rows))
    counts = [_leading(stage, rows) for stage in cut]
    places = {place for stage, count in zip(cut, counts, strict=True) for place in _places(rows_of(stage)[:count])}
    chain = sorted(places | {1, rows})
    if any(high % low for low, high in itertools.pairwise(chain)):
        return None
    refined: list[tuple[Stage, int]] = []
    for stage in cut:
        columns = math.prod(rows_of(stage)) // rows
        for place in chain[1:-1]:
            stage = split_outer(stage, place * columns)  # noqa: PLW2901 - cut once per place
        refined.append((stage, _leading(stage, rows)))
    return refined


def _leading(stage: Stage, rows: int) -> int:
    """Return how many of a stage's first axes make up its rows."""
    sizes = rows_of(stage)
    return next(count for count in range(len(sizes) + 1) if math.prod(sizes[:count]) == rows)


def _places(sizes: tuple[int, ...]) -> list[int]:
    return [math.prod(sizes[position:]) for position in range(len(sizes))]


def _stays_in_row(aligned: list[tuple[Stage, int]]) -> bool:
    """Say whether each stage reads results of earlier ones only in its own row."""
    written: dict[str, Access] = {}
    for stage, count in aligned:
        rows = rows_of(stage)[:count]
        for access in stage.reads:
            if access.name in written and not _same_row(written[access.name], access, stage, count):
                return False
        whole = isinstance(stage, Contraction) or stage.stores_columns
        columns = stage.outer[count:] if isinstance(stage, Contraction) else stage.columns
        length = math.prod(columns) if whole else 1
        standard = tuple(stride * length for stride in row_major(rows))
        if stage.target.strides[:count] == standard and stage.target.offset == 0:
            written[stage.target.name] = stage.target
        else:
            written[stage.target.name] = Access(stage.target.name, -1, stage.target.strides)
    return True


def _same_row(target: Access, read: Access, stage: Stage, count: int) -> bool:
    if target.offset < 0 or read.strides[:count] != target.strides[:count]:
        return False
    inner = stage.axes[count:]
    reach = sum(stride * (size - 1) for stride, size in zip(read.strides[count:], inner, strict=True))
    length = target.strides[count - 1] if count else math.inf
    return read.offset == 0 and reach < length


def _finished(stages: list[Stage], program: Staged, index: int, groups: list[list[Stage]]) -> Group:
    outside = {access.name for number, others in enumerate(groups) if number != index
               for stage in others for access in stage.reads}  # fmt: skip
    written = {stage.target.name for stage in stages}
    values = {tensor.name for tensor in program.tensors if tensor.role == "value"}
    local = frozenset(written & values) - outside
    if len(stages) == 1:
        stages = [_shared_out(stages[0])]
    for rows in _row_counts(stages):
        aligned = _aligned(stages, rows)
        if aligned is not None:
            count = aligned[0][1]
            whole = [_with_row(stage) if count == 0 else stage for stage, _ in aligned]
            return Group(rows=rows_of(whole[0])[: max(count, 1)], stages=tuple(whole), local=local)
    raise NoRuleError("stages whose rows do not fit each other")


def _shared_out(stage: Stage) -> Stage:
    """Cut the columns of a contraction with few rows, so that there is something to share among threads."""
    if not isinstance(stage, Contraction) or not stage.outer or math.prod(stage.outer[:-1]) >= _FEW_ROWS:
        return stage
    share = next((size for size in range(_SHARE, 0, -1) if stage.outer[-1] % size == 0), 1)
    return split_outer(stage, share) if 1 < share < stage.outer[-1] else stage


def _with_row(stage: Stage) -> Stage:
    """Return the stage with a row axis of size 1 in front."""

    def wider(access: Access) -> Access:
        return Access(access.name, access.offset, (0, *access.strides))

    if isinstance(stage, Contraction):
        return msgspec.structs.replace(
            stage, outer=(1, *stage.outer), left=wider(stage.left), right=wider(stage.right), target=wider(stage.target)
        )
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=wider(node.access))
        for node in stage.nodes
    )
    return msgspec.structs.replace(stage, rows=(1, *stage.rows), nodes=nodes, target=wider(stage.target))


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


StagedRule = Callable[[StagedTracer, Arguments], Value]


def _staged(names: str, rule: StagedRule, **defaults: Value) -> Signature:
    """Return a signature whose rule needs more than rows."""

    def checked(tracer: Tracer, a: Arguments) -> Value:
        if not isinstance(tracer, StagedTracer):
            raise NoRuleError("tensors that do not share rows and columns")
        return rule(tracer, a)

    return Signature(names, checked, **defaults)


def _elementwise(op: str, names: str) -> Signature:
    return _staged(names, lambda tracer, a: tracer.elementwise(op, *(a[name] for name in names.split())))


def _whole_numbers(value: Value, what: str) -> Shape:
    """Return a tuple of whole numbers; a single one counts as a tuple."""
    found = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int) for item in found):
        raise NoRuleError(f"{value!r} as {what}")
    return tuple(item for item in found if isinstance(item, int))


def _dim(value: Value, rank: int) -> int:
    if not isinstance(value, int) or not -rank <= value < rank:
        raise NoRuleError(f"{value!r} as one of {rank} dimensions")
    return value % rank


def _permuted(tracer: StagedTracer, view: View, order: Shape) -> View:
    places = [whole(order.index(dim), size) for dim, size in enumerate(view.shape)]
    return tracer.viewed(view, tuple(view.shape[dim] for dim in order), places)


def _permute(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    order = tuple(_dim(dim, len(view.shape)) for dim in _whole_numbers(a["dims"], "an order of dimensions"))
    if sorted(order) != list(range(len(view.shape))):
        raise NoRuleError(f"`permute` to {order}")
    return _permuted(tracer, view, order)


def _transpose(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    rank = len(view.shape)
    one, other = _dim(a["dim0"], rank), _dim(a["dim1"], rank)
    swapped = {one: other, other: one}
    return _permuted(tracer, view, tuple(swapped.get(dim, dim) for dim in range(rank)))


def _reshape(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    shape = _whole_numbers(a["shape"], "a shape")
    rest = math.prod(size for size in shape if size != -1)
    count = math.prod(view.shape)
    return tracer.reshaped(view, tuple(count // max(rest, 1) if size == -1 else size for size in shape))


def _view_as(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.reshaped(a["input"], tracer.tensor(a["other"]).shape)


def _flatten(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    rank = len(view.shape)
    start, end = _dim(a["start_dim"], rank), _dim(a["end_dim"], rank)
    merged = math.prod(view.shape[start : end + 1])
    return tracer.reshaped(view, (*view.shape[:start], merged, *view.shape[end + 1 :]))


def _unflatten(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    sizes = _whole_numbers(a["sizes"], "sizes")
    return _reshape(tracer, {"input": view, "shape": (*view.shape[:dim], *sizes, *view.shape[dim + 1 :])})


def _expand(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    wanted = _whole_numbers(a["size"], "a size")
    skipped = len(wanted) - len(view.shape)
    shape = tuple(
        view.shape[dim - skipped] if size == -1 and dim >= skipped else size for dim, size in enumerate(wanted)
    )
    return tracer.expanded(view, shape)


def _expand_as(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.expanded(tracer.tensor(a["input"]), tracer.tensor(a["other"]).shape)


def _repeat_interleave(tracer: StagedTracer, a: Arguments) -> Value:
    """Each position of a dimension several times in a row: a new dimension behind it, merged with it."""
    view = tracer.tensor(a["input"])
    if not isinstance(a["repeats"], int):
        raise NoRuleError(f"`repeat_interleave` by {a['repeats']!r}")
    dim = _dim(a["dim"], len(view.shape))
    behind = tracer.reshaped(view, (*view.shape[: dim + 1], 1, *view.shape[dim + 1 :]))
    split = (*view.shape[: dim + 1], a["repeats"], *view.shape[dim + 1 :])
    merged = (*view.shape[:dim], view.shape[dim] * a["repeats"], *view.shape[dim + 1 :])
    return tracer.reshaped(tracer.expanded(behind, split), merged)


def _repeat(tracer: StagedTracer, a: Arguments) -> Value:
    """All of a dimension several times: a new dimension before it, merged with it."""
    view = tracer.tensor(a["input"])
    repeats = _whole_numbers(a["repeats"], "repeats")
    sizes = (*(1,) * (len(repeats) - len(view.shape)), *view.shape)
    before = tracer.reshaped(view, tuple(size for pair in zip((1,) * len(sizes), sizes, strict=True) for size in pair))
    split = tuple(size for pair in zip(repeats, sizes, strict=True) for size in pair)
    merged = tuple(count * size for count, size in zip(repeats, sizes, strict=True))
    return tracer.reshaped(tracer.expanded(before, split), merged)


def _pieces(tracer: StagedTracer, view: View, dim: int, sizes: Shape) -> Value:
    found: list[Value] = []
    start = 0
    for size in sizes:
        items = [(None, None, None)] * dim + [(start, start + size, None)]
        found.append(tracer.indexed(view, items))
        start += size
    return tuple(found)


def _chunk(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    (count,) = _whole_numbers(a["chunks"], "a number of chunks")
    size = -(-view.shape[dim] // count)
    return _split(tracer, {"input": view, "split_size": size, "dim": dim})


def _split(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    size, total = a["split_size"], view.shape[dim]
    if isinstance(size, int):
        return _pieces(tracer, view, dim, tuple(min(size, total - start) for start in range(0, total, size)))
    return _pieces(tracer, view, dim, _whole_numbers(size, "sizes"))


def _unbind(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    before = [(None, None, None)] * dim
    return tuple(tracer.indexed(view, [*before, position]) for position in range(view.shape[dim]))


def _arange(tracer: StagedTracer, a: Arguments) -> Value:
    start, end, step = (a["start"], a["end"], a["step"])
    if end is None:
        start, end = 0, start
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        raise NoRuleError(f"`arange` from {start!r} to {end!r} by {step!r}")
    numbers: Value = tracer.arange(len(range(start, end, step)))
    numbers = numbers if step == 1 else tracer.binary("mul", numbers, step)
    return numbers if start == 0 else tracer.binary("add", numbers, start)


def _full(tracer: StagedTracer, a: Arguments) -> Value:
    shape = _whole_numbers(a["size"], "a size")
    return tracer.expanded(tracer.tensor(a["fill_value"]), shape)


def _full_like(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.expanded(tracer.tensor(a["fill_value"]), tracer.tensor(a["input"]).shape)


def _filled(value: float, names: str) -> Signature:
    if names.startswith("size"):
        return _staged(names, lambda tracer, a: _full(tracer, {**a, "fill_value": value}), dtype=None, device=None)
    return _staged(names, lambda tracer, a: _full_like(tracer, {**a, "fill_value": value}), dtype=None, device=None)


def _masked_fill(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.elementwise("where", a["mask"], a["value"], a["input"])


def _triangle(op: str) -> Signature:
    """`tril` and `triu`: what lies on the wrong side of a diagonal becomes 0."""

    def rule(tracer: StagedTracer, a: Arguments) -> Value:
        view = tracer.tensor(a["input"])
        rows, columns = view.shape[-2:]
        row = tracer.binary("add", tracer.reshaped(tracer.arange(rows), (rows, 1)), a["diagonal"])
        return tracer.elementwise("where", tracer.elementwise(op, tracer.arange(columns), row), view, 0.0)

    return _staged("input diagonal", rule, diagonal=0)


def _linear(tracer: StagedTracer, a: Arguments) -> Value:
    view, weight = tracer.tensor(a["input"]), tracer.tensor(a["weight"])
    names = string.ascii_letters[: len(view.shape)]
    out = (*names[:-1], "out")[: len(view.shape) - 2 + len(weight.shape)]
    found = contracted(tracer, view, weight, (tuple(names), ("out", names[-1])[-len(weight.shape) :], out))
    return found if a["bias"] is None else tracer.binary("add", found, a["bias"])


def _added_product(tracer: StagedTracer, a: Arguments) -> Value:
    """`addmm` and `baddbmm`."""
    found: Value = product(tracer, a["mat1"], a["mat2"])
    found = found if a["alpha"] == 1 else tracer.binary("mul", found, a["alpha"])
    added = a["input"] if a["beta"] == 1 else tracer.binary("mul", a["input"], a["beta"])
    return tracer.binary("add", found, added)


def _einsum(tracer: StagedTracer, a: Arguments) -> Value:
    operands = a["first"] if isinstance(a["first"], tuple) else tuple(a[name] for name in ("first", "second", "third"))
    given = [tracer.tensor(operand) for operand in operands if operand is not None]
    if not isinstance(a["equation"], str):
        raise NoRuleError("`einsum` without an equation")
    return einsum(tracer, a["equation"], given)


def _outer(tracer: StagedTracer, a: Arguments) -> Value:
    left, right = tracer.tensor(a["input"]), tracer.tensor(a["vec2"])
    return tracer.binary("mul", tracer.reshaped(left, (*left.shape, 1)), right)


def _attention(tracer: StagedTracer, a: Arguments) -> Value:
    """`scaled_dot_product_attention`: softmax(q k^T * scale + mask) v."""
    q, k, v = (tracer.tensor(a[name]) for name in ("query", "key", "value"))
    if a["dropout_p"]:
        raise NoRuleError("`scaled_dot_product_attention` with dropout")
    if a["enable_gqa"]:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = (
            tracer.tensor(_repeat_interleave(tracer, {"input": item, "repeats": repeats, "dim": -3})) for item in (k, v)
        )
    rank = len(k.shape)
    scores: Value = product(tracer, q, _transpose(tracer, {"input": k, "dim0": rank - 2, "dim1": rank - 1}))
    scale = a["scale"] if a["scale"] is not None else q.shape[-1] ** -0.5
    scores = tracer.binary("mul", scores, scale)
    if a["is_causal"]:
        seen = tracer.elementwise(
            "le", tracer.arange(k.shape[-2]), tracer.reshaped(tracer.arange(q.shape[-2]), (q.shape[-2], 1))
        )
        scores = tracer.elementwise("where", seen, scores, -math.inf)
    if a["attn_mask"] is not None:
        mask = tracer.tensor(a["attn_mask"])
        if tracer.is_truth(mask):
            scores = tracer.elementwise("where", mask, scores, -math.inf)
        else:
            scores = tracer.binary("add", scores, mask)
    weights = RULES["softmax"].call("softmax", tracer, [scores, -1], {})
    return product(tracer, weights, v)


STAGED_RULES: dict[str, Signature] = {
    **{name: _elementwise(name, "input other") for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{name: _elementwise(name, "input other") for name in ("logical_and", "logical_or")},
    "bitwise_and": _elementwise("logical_and", "input other"),
    "bitwise_or": _elementwise("logical_or", "input other"),
    "logical_not": _staged("input", lambda tracer, a: tracer.elementwise("eq", a["input"], 0.0)),
    "where": _staged(
        "condition input other", lambda tracer, a: tracer.elementwise("where", a["condition"], a["input"], a["other"])
    ),
    "masked_fill": _staged("input mask value", _masked_fill),
    "tril": _triangle("le"),
    "triu": _triangle("ge"),
    "arange": _staged("start end step dtype device", _arange, end=None, step=1, dtype=None, device=None),
    "full": _staged("size fill_value dtype device", _full, dtype=None, device=None),
    "full_like": _staged("input fill_value dtype device", _full_like, dtype=None, device=None),
    "zeros": _filled(0.0, "size dtype device"),
    "ones": _filled(1.0, "size dtype device"),
    "zeros_like": _filled(0.0, "input dtype device"),
    "ones_like": _filled(1.0, "input dtype device"),
    "bool": _staged("input", lambda tracer, a: tracer.elementwise("ne", a["input"], 0.0)),
    "permute": _staged("input dims", _permute),
    "transpose": _staged("input dim0 dim1", _transpose),
    "swapaxes": _staged("input dim0 dim1", _transpose),
    "t": _staged("input", lambda tracer, a: _transpose(tracer, {**a, "dim0": 0, "dim1": -1})),
    "reshape": _staged("input shape", _reshape),
    "view": _staged("input shape", _reshape),
    "view_as": _staged("input other", _view_as),
    "flatten": _staged("input start_dim end_dim", _flatten, start_dim=0, end_dim=-1),
    "unflatten": _staged("input dim sizes", _unflatten),
    "expand": _staged("input size", _expand),
    "expand_as": _staged("input other", _expand_as),
    "repeat_interleave": _staged("input repeats dim", _repeat_interleave),
    "repeat": _staged("input repeats", _repeat),
    "chunk": _staged("input chunks dim", _chunk, dim=0),
    "split": _staged("input split_size dim", _split, dim=0),
    "unbind": _staged("input dim", _unbind, dim=0),
    "linear": _staged("input weight bias", _linear, bias=None),
    "matmul": _staged("input other", lambda tracer, a: product(tracer, a["input"], a["other"])),
    "mm": _staged("input mat2", lambda tracer, a: product(tracer, a["input"], a["mat2"])),
    "bmm": _staged("input mat2", lambda tracer, a: product(tracer, a["input"], a["mat2"])),
    "mv": _staged("input vec", lambda tracer, a: product(tracer, a["input"], a["vec"])),
    "dot": _staged("input tensor", lambda tracer, a: product(tracer, a["input"], a["tensor"])),
    "outer": _staged("input vec2", _outer),
    "addmm": _staged("input mat1 mat2 beta alpha", _added_product, beta=1, alpha=1),
    "baddbmm": _staged("input mat1 mat2 beta alpha", _added_product, beta=1, alpha=1),
    "einsum": _staged("equation first second third", _einsum, second=None, third=None),
    "scaled_dot_product_attention": _staged(
        "query key value attn_mask dropout_p is_causal scale enable_gqa", _attention,
        attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
    ),
}  # fmt: skip
"""By torch's name, without its namespace."""
