"""A staged program: a list of stages over tensors in memory, run one after another.

A stage computes one tensor. It is either a **contraction**

    target[outer] = sum over `summed` of left[...] * right[...]

or a **row stage**: an element-wise graph with reductions over columns, as in `graph.Program`, whose loads may be
strided. Every access is affine in the stage's axes, so transposed, repeated, broadcast and sliced operands need no
copies: a stride of 0 means that the axis does not matter. Axes are as few as the strides allow: neighbours that every
access walks through alike are one. Tensors of role `value` hold intermediate results: dense row-major float32 (float64
if any tensor of the program is float64), to be allocated by the program or kept on chip where stages are fused.
Integers (positions, masks) are read as numbers of the compute type: exact up to 2^24 in float32.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Node, Program, TensorInfo


class RowStage(msgspec.Struct, frozen=True, kw_only=True):
    """For each row: element-wise operations and reductions over its columns."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first; none: a single row."""
    columns: tuple[int, ...]
    """Sizes of the axes within a row."""
    nodes: tuple[Node, ...]
    """As in `graph.Program`; `load` and `index` say by `Node.access` what they read; its strides are those along
    `rows`, then along `columns`. `Node.kind` says which of the two kinds of axes a value depends on."""
    output: int
    """Node that is stored: of kind `full` or `vector`, or `row` (one element per row) or `scalar`."""
    target: Access

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of all axes, in the order of strides."""
        return self.rows + self.columns

    @property
    def reductions(self) -> tuple[int, ...]:
        """Positions of the reductions."""
        return tuple(index for index, node in enumerate(self.nodes) if node.op in REDUCTIONS)

    @property
    def stores_columns(self) -> bool:
        """True if the target has an element per column; else it has one per row."""
        return any(
            stride for stride, size in zip(self.target.strides[len(self.rows) :], self.columns, strict=True) if size > 1
        )

    @property
    def reads(self) -> tuple[Access, ...]:
        """Elements of tensors that are read."""
        return tuple(node.access for node in self.nodes if node.op == "load" and node.access is not None)


class Contraction(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of products of two tensors; accumulated in float32 (float64 if any tensor of the program is)."""

    outer: tuple[int, ...]
    """Sizes of the axes of the target, outermost first. An axis along which both operands have a stride is a batch,
    along which only `left` has one belongs to m, only `right`: to n."""
    summed: tuple[int, ...]
    """Sizes of the axes that are summed over."""
    left: Access
    """Strides along `outer`, then along `summed`."""
    right: Access
    target: Access

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of all axes, in the order of strides."""
        return self.outer + self.summed

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * math.prod(self.axes)

    @property
    def reads(self) -> tuple[Access, ...]:
        """Elements of tensors that are read."""
        return (self.left, self.right)


Stage: TypeAlias = RowStage | Contraction


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be computed, stage by stage; every stage reads inputs, parameters and targets of earlier stages."""

    tensors: tuple[TensorInfo, ...]
    """Inputs in call order, parameters, outputs (all as the task lists them), then values."""
    stages: tuple[Stage, ...]

    @property
    def contractions(self) -> tuple[Contraction, ...]:
        """The contractions among the stages."""
        return tuple(stage for stage in self.stages if isinstance(stage, Contraction))

    @property
    def row_stages(self) -> tuple[RowStage, ...]:
        """The row stages."""
        return tuple(stage for stage in self.stages if isinstance(stage, RowStage))

    @property
    def flops(self) -> int:
        """Multiplications and additions of the contractions."""
        return sum(stage.flops for stage in self.contractions)

    @property
    def summary(self) -> str:
        """What it is, in words."""
        kinds = ", ".join(
            f"a contraction of {'x'.join(map(str, stage.outer))} over {'x'.join(map(str, stage.summed))}"
            if isinstance(stage, Contraction)
            else f"{math.prod(stage.rows)} rows of {math.prod(stage.columns)} columns"
            f"{f' with reductions: {len(stage.reductions)}' if stage.reductions else ''}"
            for stage in self.stages
        )
        values = sum(math.prod(tensor.shape) for tensor in self.tensors if tensor.role == "value")
        return (
            f"stages: {len(self.stages)} ({kinds}), {self.flops / 1e6:.1f} MFLOP in contractions, "
            f"{values} elements of intermediate results"
        )

    @property
    def sources(self) -> dict[str, TensorInfo]:
        """What stages may read, by name: inputs, parameters, values."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role != "output"}

    @property
    def targets(self) -> dict[str, TensorInfo]:
        """What stages write, by name: values, outputs. An output may be called like an input."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role in {"output", "value"}}


AnyProgram: TypeAlias = Program | Staged
"""What the rules can read a reference as."""
