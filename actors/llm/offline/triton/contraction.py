"""Writes a contraction as one kernel: a program of the grid computes a tile of one batch's product with `tl.dot`.

Axes along which both operands have a stride number the batches, those of only one the rows (m) or columns (n) of the
tile. A row stage that follows may be carried out on the tile before it is stored (the epilogue).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from actors.llm.offline.graph import Access
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction
from actors.llm.offline.triton.epilogue import LONGEST_ROW, Epilogue
from actors.llm.offline.triton.expressions import DOUBLE, TYPES, Writer, address
from actors.llm.offline.triton.kernels import Kernel, indented, launch_options, used
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.tiles import ACROSS, DOWN, TileAxes

_BLOCK_M = _BLOCK_N = 64
_BLOCK_K = 32
"""Of a tile where the plan does not say."""
_SHARED_BYTES = 200 * 1024
"""Shared memory for operands, of the 227 KiB that a block of an H100 or H200 may have."""
_STAGES = 3
"""Of Triton's own choice."""
_HALVES = frozenset({"float16", "bfloat16"})


class Operands:
    """How two operands are multiplied: their common dtype and the precision of `tl.dot`."""

    def __init__(self, dtypes: tuple[str, str], real: str, plan: Plan, *, on_gpu: bool) -> None:
        self.real = TYPES[real]
        self.accumulator = DOUBLE if plan.wide or real == "float64" else self.real
        self._dtypes = dtypes
        if self.accumulator == DOUBLE:
            self._common, self._precision = DOUBLE, "ieee"
        elif dtypes == ("float16", "float16") or (on_gpu and dtypes == ("bfloat16", "bfloat16")):
            self._common, self._precision = TYPES[dtypes[0]], "ieee"
        elif _HALVES.issuperset(dtypes):
            # Exact, since a tf32 holds every value of either type. Two of bfloat16 come here off the GPU: Triton's
            # interpreter takes its bits for an integer in a product.
            self._common, self._precision = self.real, "tf32"
        else:
            self._common, self._precision = self.real, "tf32x3" if plan.tensor_cores else "ieee"

    def widened(self, text: str, which: int) -> str:
        """Return an operand in the common type."""
        return text if TYPES[self._dtypes[which]] == self._common else f"{text}.to({self._common})"

    def dot(self, left: str, right: str, accumulator: str) -> str:
        """Return the product added to an accumulator."""
        precision = f'input_precision="{self._precision}"'
        return f"tl.dot({left}, {right}, {accumulator}, {precision}, out_dtype={self.accumulator})"


def contraction_kernel(
    stages: Sequence[Contraction], plan: Plan, names: Names, name: str, epilogue: Epilogue | None = None
) -> Kernel:
    """Return the kernel of a contraction, with what is to be done on the tile before it is stored.

    Args:
        stages: the contraction; where there is an epilogue, also others of which only the right operands differ.
        plan: how it is written.
        names: of the tensors.
        name: of the kernel.
        epilogue: what is stored instead of the contraction's result.
    """
    return _Tile(stages, plan, names, name, epilogue).kernel()


class _Tile:
    """One kernel under construction."""

    def __init__(
        self, stages: Sequence[Contraction], plan: Plan, names: Names, name: str, epilogue: Epilogue | None
    ) -> None:
        stage = stages[0]
        self._plan = plan
        self._names = names
        self._name = name
        self._epilogue = epilogue
        self._left = names.read(stage.left)
        self._rights = [names.read(each.right) for each in stages]
        self._target = names.written(stage.target)
        tensors = names.tensors
        left = tensors[self._left.name].dtype
        self._operands = [
            Operands((left, tensors[right.name].dtype), names.real, plan, on_gpu=names.on_gpu) for right in self._rights
        ]
        self._accumulators = ["acc", *(f"acc_{number}" for number in range(1, len(stages)))]
        self._large = any(math.prod(tensor.shape) >= 1 << 31 for tensor in tensors.values())
        roles = outer_roles(stage)
        whole_rows = epilogue is not None and epilogue.reduces
        widest = LONGEST_ROW if whole_rows else plan.block_n or _BLOCK_N
        sides = {"m": plan.block_m or _BLOCK_M, "n": widest}
        longest = longest_step(sides["m"] + sides["n"] * len(stages), plan)
        wanted = {**sides, "k": min(plan.block_k or _BLOCK_K, longest)}
        roles += ["k" for _ in stage.summed]
        self._axes = TileAxes(stage.axes, roles, wanted, {"k": ACROSS})
        self._downward = TileAxes(stage.axes, roles, wanted, {"k": DOWN})

    def kernel(self) -> Kernel:
        """Return it."""
        axes, plan = self._axes, self._plan
        tiles_m, tiles_n = (math.ceil(axes.counts[side] / axes.blocks[side]) for side in ("m", "n"))
        constants = {side.upper(): axes.counts[side] for side in axes.blocks}
        constants |= {f"BLOCK_{side.upper()}": size for side, size in axes.blocks.items()}
        constants |= {"TILES_M": tiles_m, "TILES_N": tiles_n}
        constants |= {"GROUP": plan.group} if plan.group else {}
        others = [] if self._epilogue is None else self._epilogue.others(self._names)
        written = self._target if self._epilogue is None else self._names.written(self._epilogue.target)
        return Kernel(
            name=self._name,
            tensors=used(access.name for access in (self._left, *self._rights, *others, written)),
            constants=constants,
            body=(*self._positions(), *self._product(), *self._end()),
            grid=(axes.counts["batch"] * tiles_m * tiles_n,),
            options=launch_options(plan),
        )

    def _positions(self) -> list[str]:
        """Return which tile of which batch a program has, and the positions of its rows and columns."""
        lines = [f"program = tl.program_id(0){'.to(tl.int64)' if self._large else ''}"]
        lines.append("tile = program % (TILES_M * TILES_N)")
        if self._axes.counts["batch"] > 1:
            lines += ["batch = program // (TILES_M * TILES_N)", *self._axes.split("batch")]
        if self._plan.group:
            lines += [
                "first = tile // (GROUP * TILES_N) * GROUP",
                "height = tl.minimum(TILES_M - first, GROUP)",
                "inside = tile % (GROUP * TILES_N)",
            ]
        at_m, at_n = ("(first + inside % height)", "inside // height") if self._plan.group else (
            "tile // TILES_N", "tile % TILES_N")  # fmt: skip
        return [
            *lines,
            f"m = {at_m} * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            *self._axes.split("m"),
            f"n = {at_n} * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
            *self._axes.split("n"),
        ]

    def _product(self) -> list[str]:
        """Return the loop over blocks of what is summed."""
        starts, rounds = [], []
        for acc, right, operands in zip(self._accumulators, self._rights, self._operands, strict=True):
            starts.append(f"{acc} = tl.zeros((BLOCK_M, BLOCK_N), {operands.accumulator})")
            rounds.append(f"right = {self._operand(right, operands, 1)}")
            rounds.append(f"{acc} = {operands.dot(operands.widened('left', 0), 'right', acc)}")
        loop = [
            "k = start + tl.arange(0, BLOCK_K)",
            *self._axes.split("k"),
            f"left = {self._operand(self._left, None, 0)}",
            *rounds,
        ]
        return [*starts, "for start in range(0, K, BLOCK_K):", *indented(loop)]

    def _operand(self, access: Access, operands: Operands | None, which: int) -> str:
        """Return a block of an operand, zero outside of the tensor."""
        offset, mask = self._axes.block(access, "m", "k") if which == 0 else self._downward.block(access, "k", "n")
        guard = f", mask={mask}, other=0.0" if mask else ""
        block = f"tl.load({address(access.name, offset)}{guard})"
        return block if operands is None else operands.widened(block, which)

    def _end(self) -> list[str]:
        """Return the statements that store the tile."""
        lines = [
            f"{acc} = {acc}.to({operands.real})"
            for acc, operands in zip(self._accumulators, self._operands, strict=True)
            if operands.accumulator != operands.real
        ]
        if self._epilogue is not None:
            lines += self._epilogue.values(self._axes, self._names, self._plan)
            return [*lines, self._epilogue.store(self._axes, self._names, self._plan)]
        offset, mask = self._axes.block(self._target, "m", "n")
        writer = Writer((), self._names.tensors, self._names.real, self._plan)
        return [*lines, writer.stored(self._target.name, offset, "acc", mask)]


def outer_roles(stage: Contraction) -> list[str]:
    """Return the role of each outer axis."""
    roles = {(True, False): "m", (False, True): "n"}
    pairs = zip(stage.left.strides[: len(stage.outer)], stage.right.strides, strict=False)
    return [roles.get((bool(left), bool(right)), "batch") for left, right in pairs]


def longest_step(sides: int, plan: Plan) -> int:
    """Return the longest step along what is summed for which shared memory holds the operands of all stages.

    Args:
        sides: elements of all operands per element of the step.
        plan: how many stages there are, and how wide an element is.
    """
    size_bytes = 8 if plan.wide else 4
    return max(16, 1 << (_SHARED_BYTES // (sides * size_bytes * (plan.stages or _STAGES))).bit_length() - 1)
