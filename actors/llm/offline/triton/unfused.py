"""Writes work the plain way: a kernel per operation, each result in memory, as an eager framework does."""

from __future__ import annotations

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Kind, Node
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.kernels import Kernel
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.work import RowWork, Store, row_major


def operation_kernels(work: RowWork, plan: Plan, names: Names, prefix: str = "") -> list[Kernel]:
    """Return the kernels in the order of their launches; the workspaces that they need are added to the names."""
    steps = _Steps(work, plan, names, prefix)
    for index, node in enumerate(work.nodes):
        if node.op not in {"const", "load", "index"} and node.kind != "scalar":
            steps.compute(index)
    for position, store in enumerate(work.stores):
        steps.copy(position, store)
    return steps.kernels


class _Steps:
    """Operations as work of their own, whose inputs are what earlier ones wrote."""

    def __init__(self, work: RowWork, plan: Plan, names: Names, prefix: str) -> None:
        self._work = work
        self._plan = msgspec.structs.replace(plan, rows=0, columns=0, persistent=0)
        self._names = names
        self._prefix = prefix
        self._results: dict[int, Access] = {}
        self.kernels: list[Kernel] = []

    def compute(self, index: int) -> None:
        """Add the kernel of one operation. It writes where the value is wanted, if that has the computing type."""
        node = self._work.nodes[index]
        wanted = [
            store.access for store in self._work.stores
            if store.node == index and self._names.tensors[store.access.name].dtype == self._names.real
        ]  # fmt: skip
        target = wanted[0] if wanted else self._workspace(index)
        spread: Kind = "full" if node.op in REDUCTIONS else node.kind
        self._add(f"{node.op}_{index}", spread, index, target)
        self._results[index] = target

    def copy(self, position: int, store: Store) -> None:
        """Add the kernel that writes an output whose value stands elsewhere."""
        if self._results.get(store.node) != store.access:
            kind = self._work.nodes[store.node].kind
            both = self._work.on_columns(store.access) and self._work.on_rows(store.access)
            self._add(f"store_{position}", "full" if both or kind == "scalar" else kind, store.node, store.access,
                      copied=True)  # fmt: skip

    def _workspace(self, index: int) -> Access:
        work = self._work
        kind = work.nodes[index].kind
        sizes = [
            size if (kind in on) else 1
            for axes, on in ((work.rows, {"row", "full"}), (work.columns, {"vector", "full"}))
            for size in axes
        ]
        strides = [stride if size > 1 else 0 for stride, size in zip(row_major(sizes), sizes, strict=True)]
        name = self._names.workspace(f"workspace_{self._prefix}{index}", tuple(size for size in sizes if size > 1))
        return Access(name, 0, tuple(strides))

    def _add(self, name: str, spread: Kind, index: int, target: Access, *, copied: bool = False) -> None:
        """Add a kernel over what `spread` depends on: of a row value only the rows, of a vector only the columns."""
        work = self._work
        step = _Step(work, spread, self._results)
        result = step.operand(index) if copied else step.applied(work.nodes[index])
        rows, columns = step.axes
        small = RowWork(rows=rows, columns=columns, nodes=tuple(step.nodes), stores=(Store(result, step.kept(target)),))
        self.kernels.append(row_kernel(small, self._plan, self._names, f"{self._prefix}{name}"))


class _Step:
    """The nodes of one kernel."""

    def __init__(self, work: RowWork, spread: Kind, results: dict[int, Access]) -> None:
        self._work = work
        self._spread = spread
        self._results = results
        self._places: dict[int, int] = {}
        self.nodes: list[Node] = []

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of the axes along rows and columns; what depends on rows only, or columns only, is a single row."""
        match self._spread:
            case "row":
                return (), self._work.rows
            case "vector":
                return (), self._work.columns
            case _:
                return self._work.rows, self._work.columns

    def kept(self, access: Access) -> Access:
        """Return an access with the strides of the axes that there are."""
        count = len(self._work.rows)
        match self._spread:
            case "row":
                strides = access.strides[:count]
            case "vector":
                strides = access.strides[count:]
            case _:
                strides = access.strides
        return msgspec.structs.replace(access, strides=strides)

    def operand(self, index: int) -> int:
        """Return where a value stands that is loaded, or computed anew if it is a scalar."""
        if index not in self._places:
            node = self._work.nodes[index]
            if node.op == "const":
                place = self._placed(node)
            elif node.access is not None:
                place = self._placed(Node(node.op, kind=self._kind(node.kind), access=self.kept(node.access)))
            elif node.kind == "scalar":
                place = self.applied(node)
            else:
                place = self._placed(Node("load", kind=self._kind(node.kind), access=self.kept(self._results[index])))
            self._places[index] = place
        return self._places[index]

    def applied(self, node: Node) -> int:
        """Return where an operation on operands stands."""
        args = tuple(self.operand(arg) for arg in node.args)
        kind: Kind = "row" if node.op in REDUCTIONS else self._kind(node.kind)
        return self._placed(Node(node.op, args, kind))

    def _placed(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _kind(self, kind: Kind) -> Kind:
        return "full" if kind == self._spread else kind
