"""Names, axes, places and the work of a Triton kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Kind, Node, NoRuleError, Program, TensorInfo
from actors.llm.offline.stages.ir import RowStage


class Names:
    """What is called how. An output may be called like an input: what is read and what is written are apart."""

    def __init__(self, tensors: Sequence[TensorInfo], arguments: Sequence[str], *, on_gpu: bool = False) -> None:
        """Give the names.

        Args:
            tensors: the task's.
            arguments: of the contract.
            on_gpu: whether what is written runs on a GPU, and not in Triton's interpreter.

        Raises:
            NoRuleError: the contract has another number of arguments than the task has tensors.
        """
        given = [tensor for tensor in tensors if tensor.role in {"input", "parameter"}]
        given += [tensor for tensor in tensors if tensor.role == "output"]
        if len(given) != len(arguments):
            raise NoRuleError(f"a contract of {len(arguments)} arguments for {len(given)} tensors")
        self.arguments = tuple(arguments)
        self.on_gpu = on_gpu
        self.sources: dict[str, TensorInfo] = {}
        self.targets: dict[str, TensorInfo] = {}
        for tensor, name in zip(given, arguments, strict=True):
            places = self.targets if tensor.role == "output" else self.sources
            places[tensor.name] = msgspec.structs.replace(tensor, name=name)
        for position, tensor in enumerate(tensor for tensor in tensors if tensor.role == "value"):
            named = msgspec.structs.replace(tensor, name=self._fresh(f"value_{position}"))
            self.sources[tensor.name] = self.targets[tensor.name] = named
        self.workspaces: list[TensorInfo] = []
        self.real = "float64" if any(tensor.dtype == "float64" for tensor in tensors) else "float32"

    def workspace(self, wanted: str, shape: tuple[int, ...]) -> str:
        """Add a workspace of the computing type, and return its name."""
        tensor = TensorInfo(name=self._fresh(wanted), role="value", shape=shape, dtype=self.real)
        self.workspaces.append(tensor)
        return tensor.name

    def read(self, access: Access) -> Access:
        """Return an access by the name of what is read."""
        return msgspec.structs.replace(access, name=self.sources[access.name].name) if access.name else access

    def written(self, access: Access) -> Access:
        """Return an access by the name of what is written."""
        return msgspec.structs.replace(access, name=self.targets[access.name].name)

    def _fresh(self, wanted: str) -> str:
        """Return a name that no argument has."""
        while wanted in self.arguments:
            wanted += "_"
        return wanted

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors, by their names in the source."""
        everything = (*self.sources.values(), *self.targets.values(), *self.workspaces)
        return {tensor.name: tensor for tensor in everything}


def common_axes(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the coarsest axes of which both can be made by joining neighbours; None if there are none.

    >>> common_axes((4, 16, 512), (64, 512))
    (4, 16, 512)
    """
    left, right = [size for size in one if size > 1], [size for size in other if size > 1]
    found: list[int] = []
    while left and right:
        inner = min(left[-1], right[-1])
        if max(left[-1], right[-1]) % inner:
            return None
        found.append(inner)
        for sizes in (left, right):
            sizes[-1] //= inner
            if sizes[-1] == 1:
                sizes.pop()
    return None if left or right else tuple(reversed(found))


def cut(sizes: Sequence[int], strides: Sequence[int], finer: Sequence[int]) -> tuple[int, ...]:
    """Return the strides along finer axes, of which neighbours make up the axes given.

    >>> cut((64, 512), (512, 1), (4, 16, 512))
    (8192, 512, 1)
    """
    rest = [(size, stride) for size, stride in zip(sizes, strides, strict=False) if size > 1]
    found: list[int] = []
    for size in reversed(finer):
        left, stride = rest.pop()
        found.append(stride)
        if left > size:
            rest.append((left // size, stride * size))
    return tuple(reversed(found))


class Numbering(msgspec.Struct, frozen=True):
    """A variable of the source that numbers the points of some axes, outermost first."""

    name: str
    sizes: tuple[int, ...]

    @property
    def axes(self) -> list[str]:
        """The variables that number the points of each axis."""
        return [self.name] if len(self.sizes) == 1 else [f"{self.name}_{axis}" for axis in range(len(self.sizes))]

    def split(self) -> list[str]:
        """Return the statements that make the variables of the axes from the one that numbers all."""
        if len(self.sizes) <= 1:
            return []
        lines = []
        for axis, (name, inner) in enumerate(zip(self.axes, row_major(self.sizes), strict=True)):
            text = self.name if inner == 1 else f"{self.name} // {inner}"
            lines.append(f"{name} = {text}" if axis == 0 else f"{name} = {text} % {self.sizes[axis]}")
        return lines


def place(access: Access, axes: Sequence[str]) -> str:
    """Return the offset of an element, in elements; empty for the first of a tensor.

    Args:
        access: which element.
        axes: the variable of each axis that it has a stride for.
    """
    terms = [
        name if stride == 1 else f"{name} * {stride}"
        for name, stride in zip(axes, access.strides, strict=False)
        if stride
    ]
    return " + ".join([*terms, *([str(access.offset)] if access.offset else [])])


class Store(msgspec.Struct, frozen=True):
    """A node's values, and where they go."""

    node: int
    access: Access


class RowWork(msgspec.Struct, frozen=True, kw_only=True):
    """For each row: element-wise operations and reductions over its columns. Accesses have the source's names."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first."""
    columns: tuple[int, ...]
    nodes: tuple[Node, ...]
    """Every `load` and `index` has an access; its strides are along `rows`, then along `columns`."""
    stores: tuple[Store, ...]

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return math.prod(self.rows)

    @property
    def column_count(self) -> int:
        """Number of columns."""
        return math.prod(self.columns)

    @property
    def reductions(self) -> tuple[int, ...]:
        """Positions of the reductions."""
        return tuple(index for index, node in enumerate(self.nodes) if node.op in REDUCTIONS)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All accesses to memory."""
        reads = (node.access for node in self.nodes if node.op == "load" and node.access is not None)
        return (*reads, *(store.access for store in self.stores))

    def levels(self) -> list[int]:
        """Return, per node, how many passes over a row must be complete before it can be computed."""
        found: list[int] = []
        for node in self.nodes:
            below = max((found[arg] for arg in node.args), default=0)
            found.append(below + 1 if node.op in REDUCTIONS else below)
        return found

    def on_rows(self, access: Access) -> bool:
        """Say whether an access depends on the row."""
        return any(access.strides[: len(self.rows)])

    def on_columns(self, access: Access) -> bool:
        """Say whether an access depends on the column."""
        return any(access.strides[len(self.rows) :])


def softmax_sums(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the sums of exponentials that are relative to a maximum of the same values, by the maximum."""
    found: dict[int, int] = {}
    for index, node in enumerate(nodes):
        exponential = nodes[node.args[0]] if node.op == "sum" else node
        difference = nodes[exponential.args[0]] if node.op == "sum" and exponential.op == "exp" else node
        if difference.op == "sub" and difference is not node:
            value, largest = difference.args
            if nodes[largest].op == "max" and nodes[largest].args[0] == value:
                found[largest] = index
    return found


def work_of_program(program: Program, names: Names) -> RowWork:
    """Return a program of rows and columns as work: all its outputs at once."""
    columns = program.columns
    strides: dict[Kind, tuple[int, int]] = {"full": (columns, 1), "vector": (0, 1), "row": (1, 0), "scalar": (0, 0)}
    nodes = tuple(
        msgspec.structs.replace(node, access=Access(names.sources[node.name].name, 0, strides[node.kind]))
        if node.op == "load"
        else node
        for node in program.nodes
    )
    outputs = [tensor for tensor in program.tensors if tensor.role == "output"]
    stores = tuple(
        Store(output, Access(names.targets[tensor.name].name, 0, strides[nodes[output].kind]))
        for output, tensor in zip(program.outputs, outputs, strict=True)
    )
    return RowWork(rows=(program.rows,), columns=(columns,), nodes=nodes, stores=stores)


def work_of_stage(stage: RowStage, names: Names) -> RowWork:
    """Return a row stage as work."""
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=names.read(node.access))
        for node in stage.nodes
    )
    store = Store(stage.output, names.written(stage.target))
    return RowWork(rows=stage.rows, columns=stage.columns, nodes=nodes, stores=(store,))


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor."""
    return tuple(math.prod(sizes[position + 1 :]) for position in range(len(sizes)))
