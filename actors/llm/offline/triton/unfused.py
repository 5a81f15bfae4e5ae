"""Writes a program the plain way: a kernel per operation, each result in memory, as an eager framework does."""

from __future__ import annotations

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Kind, Node, Program, TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.kernels import Kernel
from actors.llm.offline.triton.rows import row_kernel


def operation_kernels(program: Program, plan: Plan) -> tuple[list[TensorInfo], list[Kernel]]:
    """Return the workspaces that are needed, and the kernels in the order of their launches."""
    steps = _Steps(program, plan)
    for index, node in enumerate(program.nodes):
        if node.op not in {"const", "load"} and node.kind != "scalar":
            steps.compute(index)
    for position in range(len(program.outputs)):
        steps.copy(position)
    return steps.workspaces, steps.kernels


class _Steps:
    """Operations as programs of their own, whose inputs are what earlier ones wrote."""

    def __init__(self, program: Program, plan: Plan) -> None:
        self._program = program
        self._plan = msgspec.structs.replace(plan, rows=0, columns=0, persistent=0)
        self._outputs = [tensor for tensor in program.tensors if tensor.role == "output"]
        self._dtype = "float64" if any(tensor.dtype == "float64" for tensor in program.tensors) else "float32"
        self._results: dict[int, TensorInfo] = {}
        self.workspaces: list[TensorInfo] = []
        self.kernels: list[Kernel] = []

    def compute(self, index: int) -> None:
        """Add the kernel of one operation; it writes into an output where the value is one of the same type."""
        node = self._program.nodes[index]
        target = next(
            (tensor for tensor, output in zip(self._outputs, self._program.outputs, strict=True)
             if output == index and tensor.dtype == self._dtype), None,
        )  # fmt: skip
        if target is None:
            target = TensorInfo(name=f"workspace_{index}", role="output", shape=self._shape(node), dtype=self._dtype)
            self.workspaces.append(target)
        kind: Kind = "full" if node.op in REDUCTIONS else node.kind
        self._add(f"{node.op}_{index}", kind, index, target)
        self._results[index] = target

    def copy(self, position: int) -> None:
        """Add the kernel that writes an output whose value stands elsewhere."""
        index, target = self._program.outputs[position], self._outputs[position]
        if self._results.get(index) != target:
            self._add(f"output_{position}", self._program.nodes[index].kind, index, target, copied=True)

    def _shape(self, node: Node) -> tuple[int, ...]:
        program = self._program
        return {"row": (program.rows,), "vector": (program.columns,)}.get(node.kind, (program.rows, program.columns))

    def _add(self, name: str, kind: Kind, index: int, target: TensorInfo, *, copied: bool = False) -> None:
        """Add a kernel whose values spread over what `kind` depends on; the values of a row or a vector are rows."""
        program = self._program
        step = _Step(program, kind, self._results)
        result = step.operand(index) if copied else step.applied(program.nodes[index])
        rows, columns = {"row": (program.rows, 1), "vector": (program.columns, 1)}.get(
            kind, (program.rows, program.columns)
        )
        small = Program(
            nodes=tuple(step.nodes), outputs=(result,), rows=rows, columns=columns, tensors=(*step.tensors, target)
        )
        self.kernels.append(row_kernel(small, self._plan, name))


class _Step:
    """The nodes of one kernel."""

    def __init__(self, program: Program, spread: Kind, results: dict[int, TensorInfo]) -> None:
        self._program = program
        self._spread = spread
        self._results = results
        self._places: dict[int, int] = {}
        self.nodes: list[Node] = []
        self.tensors: list[TensorInfo] = [tensor for tensor in program.tensors if tensor.role != "output"]

    def operand(self, index: int) -> int:
        """Return where a value stands that is loaded, or computed anew if it is a scalar."""
        if index not in self._places:
            node = self._program.nodes[index]
            if node.op in {"const", "load"}:
                place = self._placed(msgspec.structs.replace(node, kind=self._kind(node.kind)))
            elif node.kind == "scalar":
                place = self.applied(node)
            else:
                source = msgspec.structs.replace(self._results[index], role="input")
                self.tensors.append(source)
                place = self._placed(Node("load", kind=self._kind(node.kind), name=source.name))
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
