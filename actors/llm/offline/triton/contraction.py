"""Contractions in Triton: tiles, and the row stages that end on them.

Axes along which both operands have a stride number the batches, those of only one the rows (m) or columns (n) of the
tile. A row stage that follows may be carried out on the tile before it is stored (the epilogue).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Node
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction, RowStage, Staged
from actors.llm.offline.triton.expressions import DOUBLE, TYPES, Writer, address
from actors.llm.offline.triton.kernels import Kernel, indented, launch_options, next_power_of_two, used
from actors.llm.offline.triton.names import Names, Numbering, common_axes, cut, place, row_major

DOWN, ACROSS = "[:, None]", "[None, :]"
"""How the numbers along a side become the rows or the columns of a block."""
_LEAST = 16
"""Shortest side of a block that `tl.dot` takes."""


class TileAxes:
    """Axes by their roles, with the variables that number them in the source."""

    def __init__(
        self, sizes: Sequence[int], roles: Sequence[str], blocks: Mapping[str, int], views: Mapping[str, str]
    ) -> None:
        """Give every axis its variable.

        Args:
            sizes: of the axes, outermost first.
            roles: of each axis: `batch`, or the name of the block's side that it belongs to.
            blocks: wanted sizes of the block by side; they become powers of two no longer than needed.
            views: by side, how its numbers are laid out in a block, where the variable does not say so itself.
        """
        self._roles = tuple(roles)
        self.numbers = {
            role: Numbering(role, tuple(size for size, at in zip(sizes, roles, strict=True) if at == role))
            for role in ("batch", *blocks)
        }
        self.counts = {role: math.prod(numbers.sizes) for role, numbers in self.numbers.items()}
        self.blocks = {
            side: max(_LEAST, min(next_power_of_two(wanted), next_power_of_two(self.counts[side])))
            for side, wanted in blocks.items()
        }
        self._views = views
        waiting = {role: iter(numbers.axes) for role, numbers in self.numbers.items()}
        self._variables = tuple(f"{next(waiting[role])}{self._views.get(role, '')}" for role in roles)

    def split(self, role: str) -> list[str]:
        """Return the statements that make the variables of a role's axes from the one that numbers all."""
        return self.numbers[role].split()

    def bound(self, side: str) -> str:
        """Return the condition that a block's side lies within the tensors; empty if it always does."""
        return f"({self._viewed(side)} < {side.upper()})" if self.counts[side] % self.blocks[side] else ""

    def block(self, access: Access, *sides: str) -> tuple[str, str]:
        """Return offset and mask of the block of elements that spreads over `sides`, also where no axis does."""
        parts = [place(access, self._variables)]
        parts += [f"{self._viewed(side)} * 0" for side in sides if not self._depends(access, side)]
        return " + ".join(filter(None, parts)), self.mask(*sides)

    def element(self, access: Access) -> tuple[str, str]:
        """Return offset and mask of elements that spread only over the sides that they depend on."""
        return place(access, self._variables), self.mask(*(side for side in self.blocks if self._depends(access, side)))

    def mask(self, *sides: str) -> str:
        """Return the condition that all of some sides lie within the tensors; empty if they always do."""
        return " & ".join(filter(None, map(self.bound, sides)))

    def _viewed(self, side: str) -> str:
        return f"{side}{self._views.get(side, '')}"

    def _depends(self, access: Access, side: str) -> bool:
        return any(stride for stride, role in zip(access.strides, self._roles, strict=False) if role == side)


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
