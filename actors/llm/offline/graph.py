"""A program as a graph over rows and columns: what the built-in rules understand of a reference.

All tensors of a supported program live in one space of `rows` x `columns`: full ones, vectors along the columns
(a learned weight), one value per row (the result of a reduction), and scalars. Nodes are shared: the same operation on
the same operands is one node.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["scalar", "row", "vector", "full"]
"""What a node's value depends on: nothing, the row, the column, both."""

REDUCTIONS = frozenset({"sum", "max", "min"})
COSTLY = frozenset({"exp", "log", "log1p", "tanh", "erf", "gelu_erf", "sigmoid", "silu", "sqrt", "rsqrt", "div", "pow"})
"""Operations worth keeping the result of instead of computing it twice."""


class NoRuleError(Exception):
    """The built-in rules do not know something; the text names it."""


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor as the task's table lists it."""

    name: str
    role: Literal["input", "parameter", "output", "value"]
    """`value`: an intermediate result of a staged program."""
    shape: tuple[int, ...]
    dtype: str


class Access(msgspec.Struct, frozen=True):
    """An element of a tensor in memory: `offset` plus the stride of each axis of a stage times the position there."""

    name: str
    """The tensor; empty: the number itself is meant, not an element."""
    offset: int
    strides: tuple[int, ...]
    """In elements, one per axis of the stage; 0 where the axis does not matter."""


class Node(msgspec.Struct, frozen=True):
    """One value. Operands are positions in `Program.nodes` and smaller than the node's own."""

    op: str
    """`const`, `load`, `index`, a reduction, or an element-wise operation of `expressions.py`. Comparisons give 1.0 or
    0.0; `where` takes its second operand where the first is not 0."""
    args: tuple[int, ...] = ()
    kind: Kind = "scalar"
    value: float = 0.0
    """Of `const`."""
    name: str = ""
    """Of `load`: the tensor."""
    access: Access | None = None
    """In stages, of `load`: which element; of `index`: the number that it stands for (a position, as of `arange`)."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be computed."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    """Nodes, in the order of the output tensors."""
    rows: int
    columns: int
    tensors: tuple[TensorInfo, ...]

    @property
    def reductions(self) -> tuple[int, ...]:
        """Positions of the reductions."""
        return tuple(index for index, node in enumerate(self.nodes) if node.op in REDUCTIONS)

    @property
    def passes(self) -> int:
        """Times that a row must be gone through: one more than reductions that wait for one another."""
        return max(levels(self)[output] for output in self.outputs) + 1

    @property
    def summary(self) -> str:
        """What it is, in words."""
        return (
            f"{self.rows} rows of {self.columns} columns, reductions per row: {len(self.reductions)}, "
            f"loops over a row: at least {self.passes}"
            f"{', exponentials or the like for every element' if self.costly else ''}"
        )

    @property
    def costly(self) -> bool:
        """True if something costly is computed for every element."""
        return any(node.op in COSTLY and node.kind == "full" for node in self.nodes)


def levels(program: Program) -> list[int]:
    """Return, per node, how many passes over a row must be complete before it can be computed."""
    found: list[int] = []
    for node in program.nodes:
        below = max((found[arg] for arg in node.args), default=0)
        found.append(below + 1 if node.op in REDUCTIONS else below)
    return found


def joined(kinds: tuple[Kind, ...]) -> Kind:
    """Return what a value depends on whose operands depend on `kinds`."""
    on_row = any(kind in {"row", "full"} for kind in kinds)
    on_column = any(kind in {"vector", "full"} for kind in kinds)
    if on_row and on_column:
        return "full"
    if on_row:
        return "row"
    return "vector" if on_column else "scalar"


class GraphBuilder:
    """Collects nodes, each once."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[Node, int] = {}

    def add(self, node: Node) -> int:
        """Return the position of `node`, adding it if it is new."""
        index = self._known.get(node)
        if index is None:
            index = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return index

    def const(self, value: float) -> int:
        """Add a constant."""
        return self.add(Node("const", value=float(value)))

    def apply(self, op: str, *args: int) -> int:
        """Add an element-wise operation."""
        return self.add(Node(op, args, joined(tuple(self.nodes[arg].kind for arg in args))))

    def reduce(self, op: str, arg: int) -> int:
        """Add a reduction over the columns."""
        return self.add(Node(op, (arg,), "row"))
