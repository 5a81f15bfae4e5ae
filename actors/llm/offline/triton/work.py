"""What one kernel over rows and columns has to do, whatever kind of program it is from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Kind, Node, Program
from actors.llm.offline.stages.ir import RowStage
from actors.llm.offline.triton.names import Names


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
