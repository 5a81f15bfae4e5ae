"""The transformations that make sense for staged programs in C++ on a CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from actors.llm.offline.graph import COSTLY
from actors.llm.offline.plan import Catalogue, Move
from actors.llm.offline.stages.ir import Contraction, RowStage, Stage, Staged, bound_of
from actors.llm.offline.stages.tracing import grouped

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "tile": (4, 8, 6),
    "lanes": (2, 4),
    "rows": (32, 8, 128),
    "accumulators": (4, 2),
    "unroll": (2, 4),
})  # fmt: skip
"""Fields of a plan that are numbers, and the values that are tried."""


def _is_strided(stage: Stage) -> bool:
    """Say whether an operand of a contraction has columns that are no neighbours."""
    if not isinstance(stage, Contraction) or not stage.outer:
        return False
    return any(access.strides[len(stage.outer) - 1] not in {0, 1} for access in stage.reads)


def _meets_again(stage: RowStage) -> bool:
    """Say whether something costly per element feeds a reduction."""
    return bool(stage.reductions) and any(node.op in COSTLY and node.kind == "full" for node in stage.nodes)


def _is_fusible(program: Staged) -> bool:
    return any(len(group.stages) > 1 for group in grouped(program, fuse=True))


_MOVES: tuple[Move[Staged], ...] = (
    Move(
        name="threads",
        title="Share rows among threads",
        why="Rows of every stage are independent: give each OpenMP thread its share of them.",
        difficulty=1,
        priority=0.7,
        applies=lambda program: any(math.prod(stage.axes) > 1 for stage in program.stages),
    ),
    Move(
        name="vectorise",
        title="Vectorise all loops",
        why="Keep a vector of results, or of terms of the sum, in a register; write loops over rows for SIMD lanes and "
        "inline exponentials and the like as polynomials.",
        difficulty=3,
        priority=0.65,
        applies=lambda _: True,
    ),
    Move(
        name="fuse",
        title="Fuse stages, block by block",
        why="What one stage hands to the next in the same row stays in a small buffer next to the core: norms before a "
        "product, epilogues behind it, scores between softmax and weighted sum.",
        difficulty=3,
        priority=0.6,
        applies=_is_fusible,
    ),
    Move(
        name="tile",
        title="Register tile of several rows",
        why="A single accumulator waits for its own last addition, and each operand is used once per load; a tile of "
        "rows has independent sums and uses what it loads several times.",
        difficulty=2,
        priority=0.55,
        needs=("vectorise",),
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="lanes",
        title="Register tile of several vectors",
        why="Several vectors of columns per row of a tile use each value of the other operand several times.",
        difficulty=2,
        priority=0.45,
        needs=("vectorise",),
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="pack",
        title="Pack operands into panels",
        why="An operand whose columns lie far apart cannot be loaded as a vector; copied into panels once, it is read "
        "in order.",
        difficulty=3,
        priority=0.45,
        needs=("vectorise",),
        applies=lambda program: any(_is_strided(stage) for stage in program.stages),
    ),
    Move(
        name="skip",
        title="Skip masked columns",
        why="What a mask leaves out gets weight 0: its scores need not be computed, nor its values read.",
        difficulty=2,
        priority=0.5,
        needs=("fuse",),
        applies=lambda program: any(bound_of(stage) is not None for stage in program.row_stages),
    ),
    Move(
        name="keep",
        title="Keep costly values of a row",
        why="A later loop over the row needs what an earlier one computed at some cost.",
        difficulty=2,
        priority=0.25,
        applies=lambda program: any(_meets_again(stage) for stage in program.row_stages),
    ),
    Move(
        name="reuse",
        title="Keep workspaces between calls",
        why="Fresh memory costs a page fault per page; a workspace that is allocated once does not.",
        difficulty=1,
        priority=0.45,
        needs=("threads",),
        applies=lambda program: bool(program.stages[1:]),
    ),
    Move(
        name="rows",
        title="Other number of rows per block",
        why="Small blocks keep buffers in the first-level cache; large ones use each loaded operand more often.",
        difficulty=1,
        priority=0.25,
        needs=("fuse",),
        applies=_is_fusible,
    ),
    Move(
        name="dynamic",
        title="Hand blocks to free threads",
        why="Blocks of different length, or threads that meet other work, leave a thread waiting at the end.",
        difficulty=1,
        priority=0.25,
        needs=("threads",),
        applies=lambda program: any(math.prod(stage.axes) > 1 for stage in program.stages),
    ),
    Move(
        name="accumulators",
        title="Split reductions over accumulators",
        why="A single accumulator waits for its own last addition; several over parts of the row do not.",
        difficulty=2,
        priority=0.2,
        needs=("vectorise",),
        applies=lambda program: any(stage.reductions for stage in program.row_stages),
    ),
    Move(
        name="unroll",
        title="Interleave parts of a row",
        why="Independent chains of operations hide the latency of divisions and polynomials.",
        difficulty=2,
        priority=0.2,
        needs=("vectorise",),
        applies=lambda program: bool(program.row_stages),
    ),
)

CATALOGUE: Catalogue[Staged] = Catalogue(
    moves=_MOVES,
    parameters=PARAMETERS,
    at_once=frozenset({"fuse", "threads", "vectorise"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|epilogue|on chip|flash"),
        ("threads", r"thread|parallel|openmp"),
        ("vectorise", r"vectori[sz]|simd|avx"),
        ("tile", r"register (?:tile|block)|micro-?kernel|tile of .*rows"),
        ("lanes", r"several vectors|vectors per"),
        ("pack", r"\bpack"),
        ("skip", r"skip|masked (?:keys|columns)"),
        ("keep", r"row buffer|keep .*values"),
        ("reuse", r"workspace|page fault"),
        ("dynamic", r"dynamic|load balanc|work stealing"),
        ("accumulators", r"accumulators|partial sums"),
        ("unroll", r"unroll"),
    ),
)
