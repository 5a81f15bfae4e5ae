"""A row stage that is carried out on the tile of the contraction before it, whose result then needs no memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

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
    tiles: Mapping[str, str]
    """Results of contractions, and the variables that hold their tiles."""

    @property
    def reduces(self) -> bool:
        """Whether a tile must hold whole rows."""
        return any(node.op in REDUCTIONS for node in self.nodes)

    def others(self, names: Names) -> list[Access]:
        """Return what is read besides the tile."""
        reads = [node.access for node in self.nodes if node.op == "load" and node.access is not None]
        return [names.read(access) for access in reads if access.name not in self.tiles]

    def values(
        self, axes: TileAxes, names: Names, plan: Plan, wanted: int | None = None, known: Collection[int] = ()
    ) -> list[str]:
        """Return the statements that compute a node from the tiles and `known` nodes; by default the result."""
        writer = Writer(self.nodes, names.tensors, names.real, plan)
        needed = ancestors(self.nodes, self.output if wanted is None else wanted).difference(known)
        return [
            f"v{index} = {self._value(node, writer, axes, names)}"
            for index, node in enumerate(self.nodes)
            if index in needed and node.op != "const"
        ]

    def store(self, axes: TileAxes, names: Names, plan: Plan) -> str:
        """Return the statement that stores the result."""
        writer = Writer(self.nodes, names.tensors, names.real, plan)
        target = names.written(self.target)
        sides = ("m",) if self.nodes[self.output].kind == "row" else ("m", "n")
        offset, mask = axes.block(target, *sides)
        return writer.stored(target.name, offset, f"v{self.output}", mask)

    def _value(self, node: Node, writer: Writer, axes: TileAxes, names: Names) -> str:
        if node.op in REDUCTIONS:
            return writer.reduced(node.op, f"v{node.args[0]}", axes.bound("n"))
        if node.access is None:
            return writer.operation(node)
        if node.op == "load" and node.access.name in self.tiles:
            return self.tiles[node.access.name]
        offset, mask = axes.element(node.access)
        return (
            writer.numbered(offset) if node.op == "index" else writer.loaded(names.read(node.access).name, offset, mask)
        )


def joined(contraction: Contraction, rows: RowStage, program: Staged) -> tuple[Contraction, Epilogue] | None:
    """Return a contraction and what follows it over the same axes; None if they must be kernels of their own.

    Reductions need rows that are exactly the columns of a tile.
    """
    finer = common_axes(contraction.outer, rows.axes)
    if finer is None or not follows(contraction, rows, program):
        return None
    product, epilogue = over(contraction, rows, finer)
    if epilogue.reduces and not _holds_rows(product, math.prod(rows.columns)):
        return None
    return product, epilogue


def follows(contraction: Contraction, rows: RowStage, program: Staged) -> bool:
    """Say whether a row stage is the only one that reads a contraction's result, element for element."""
    value = contraction.target.name
    reads = [access for stage in program.stages for access in stage.reads if access.name == value]
    return (
        len(reads) == 1
        and reads[0] in rows.reads
        and is_dense(reads[0], rows.axes)
        and is_dense(contraction.target, contraction.outer)
    )


def over(contraction: Contraction, rows: RowStage, finer: tuple[int, ...]) -> tuple[Contraction, Epilogue]:
    """Return a contraction and a row stage over axes that are finer than those of both."""
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=_cut(node.access, rows.axes, finer))
        for node in rows.nodes
    )
    target = _cut(rows.target, rows.axes, finer)
    epilogue = Epilogue(nodes=nodes, output=rows.output, target=target, tiles={contraction.target.name: "acc"})
    return recut(contraction, finer), epilogue


def with_others(
    product: Contraction, others: Sequence[Contraction], epilogue: Epilogue
) -> tuple[tuple[Contraction, ...], Epilogue]:
    """Return a contraction and others that go with it, over the same axes, and what follows all of them."""
    names = {other.target.name: f"acc_{number}" for number, other in enumerate(others, start=1)}
    cut_alike = (recut(other, product.outer) for other in others)
    return (product, *cut_alike), msgspec.structs.replace(epilogue, tiles={**epilogue.tiles, **names})


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


def is_dense(access: Access, sizes: Sequence[int]) -> bool:
    """Say whether an access goes through a tensor from its first element to its last."""
    steps = zip(access.strides, row_major(sizes), sizes, strict=False)
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


def ancestors(nodes: Sequence[Node], index: int) -> set[int]:
    """Return a node and all that it depends on."""
    found: set[int] = set()
    waiting = [index]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting.extend(nodes[at].args)
    return found
