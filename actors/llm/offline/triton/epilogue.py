"""A row stage that is carried out on the tile of the contraction before it, whose result then needs no memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Node
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction, RowStage, Staged
from actors.llm.offline.triton.axes import common_axes, cut
from actors.llm.offline.triton.expressions import Writer
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.tiles import TileAxes
from actors.llm.offline.triton.work import row_major

LONGEST_ROW = 256
"""Widest tile that holds a whole row, for row stages with reductions."""


class Epilogue(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a contraction. Accesses have the strides of the contraction's axes."""

    nodes: tuple[Node, ...]
    output: int
    target: Access
    value: str
    """The contraction's result: the tile."""

    @property
    def reduces(self) -> bool:
        """Whether a tile must hold whole rows."""
        return any(node.op in REDUCTIONS for node in self.nodes)

    def accesses(self, names: Names) -> list[Access]:
        """Return what is read besides the tile, and what is written."""
        reads = [node.access for node in self.nodes if node.op == "load" and node.access is not None]
        return [*(names.read(access) for access in reads if access.name != self.value), names.written(self.target)]

    def values(self, axes: TileAxes, names: Names, plan: Plan, tile: str = "acc") -> list[str]:
        """Return the statements that compute every node."""
        writer = Writer(self.nodes, names.tensors, names.real, plan)
        return [
            f"v{index} = {self._value(node, writer, axes, names, tile)}"
            for index, node in enumerate(self.nodes)
            if node.op != "const"
        ]

    def store(self, axes: TileAxes, names: Names, plan: Plan) -> str:
        """Return the statement that stores the result."""
        writer = Writer(self.nodes, names.tensors, names.real, plan)
        target = names.written(self.target)
        sides = ("m",) if self.nodes[self.output].kind == "row" else ("m", "n")
        offset, mask = axes.block(target, *sides)
        return writer.stored(target.name, offset, f"v{self.output}", mask)

    def _value(self, node: Node, writer: Writer, axes: TileAxes, names: Names, tile: str) -> str:
        if node.op in REDUCTIONS:
            return writer.reduced(node.op, f"v{node.args[0]}", axes.bound("n"))
        if node.access is None:
            return writer.operation(node)
        if node.access.name == self.value and node.op == "load":
            return tile
        offset, mask = axes.element(node.access)
        return (
            writer.numbered(offset) if node.op == "index" else writer.loaded(names.read(node.access).name, offset, mask)
        )


def joined(contraction: Contraction, rows: RowStage, program: Staged) -> tuple[Contraction, Epilogue] | None:
    """Return a contraction and what follows it over the same axes; None if they must be kernels of their own.

    The row stage must be the only one that reads the contraction's result, element for element. Reductions need rows
    that are exactly the columns of a tile.
    """
    value = contraction.target.name
    reads = [access for stage in program.stages for access in stage.reads if access.name == value]
    finer = common_axes(contraction.outer, rows.axes)
    dense = row_major(rows.axes)
    if len(reads) != 1 or reads[0] not in rows.reads or finer is None or not _same(reads[0], dense, rows.axes):
        return None
    if not _same(contraction.target, row_major(contraction.outer), contraction.outer):
        return None
    product = recut(contraction, finer)
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=_cut(node.access, rows.axes, finer))
        for node in rows.nodes
    )
    epilogue = Epilogue(nodes=nodes, output=rows.output, target=_cut(rows.target, rows.axes, finer), value=value)
    if epilogue.reduces and not _holds_rows(product, math.prod(rows.columns)):
        return None
    return product, epilogue


def recut(contraction: Contraction, finer: tuple[int, ...]) -> Contraction:
    """Return a contraction with finer outer axes."""
    outer = contraction.outer

    def along(access: Access) -> Access:
        strides = (*cut(outer, access.strides, finer), *access.strides[len(outer) :])
        return msgspec.structs.replace(access, strides=strides)

    return msgspec.structs.replace(
        contraction,
        outer=finer,
        left=along(contraction.left),
        right=along(contraction.right),
        target=along(contraction.target),
    )


def _cut(access: Access, sizes: tuple[int, ...], finer: tuple[int, ...]) -> Access:
    return msgspec.structs.replace(access, strides=cut(sizes, access.strides, finer))


def _same(access: Access, dense: Sequence[int], sizes: Sequence[int]) -> bool:
    """Say whether an access goes through a tensor from its first element to its last."""
    steps = zip(access.strides, dense, sizes, strict=False)
    return access.offset == 0 and all(stride == wanted for stride, wanted, size in steps if size > 1)


def _holds_rows(contraction: Contraction, columns: int) -> bool:
    """Say whether the columns of a row stage are those of a tile."""
    inner = 1
    for axis in reversed(range(len(contraction.outer))):
        if inner == columns:
            break
        if contraction.left.strides[axis] or not contraction.right.strides[axis]:
            return False
        inner *= contraction.outer[axis]
    others = range(axis if inner == columns else axis + 1)
    free = all(contraction.left.strides[at] or not contraction.right.strides[at] for at in others)
    return inner == columns <= LONGEST_ROW and free
