"""The transformations that make sense for C++ on a CPU."""

from __future__ import annotations

import math

from actors.llm.offline.lowering import bound_of, grouped
from actors.llm.offline.plan import Catalogue, Move
from actors.llm.offline.stages import COSTLY, Program, Stage


def _is_strided(stage: Stage) -> bool:
    """Return True if an operand of a contraction has columns that are not contiguous."""
    is_product = stage.is_contraction and bool(stage.rows)
    return is_product and any(access.strides[len(stage.rows) - 1] not in {0, 1} for access in stage.reads)


def _meets_again(stage: Stage) -> bool:
    """Return True if a value that is costly per element feeds a reduction."""
    return bool(stage.reductions) and any(node.op in COSTLY and node.kind == "full" for node in stage.nodes)


def _is_fusible(program: Program) -> bool:
    return any(len(group.stages) > 1 for group in grouped(program, fuse=True))


def _has_work(program: Program) -> bool:
    return any(math.prod(stage.axes) > 1 for stage in program.stages)


def _has_products(program: Program) -> bool:
    return bool(program.contractions)


CATALOGUE = Catalogue(
    moves=(
        Move(
            name="threads",
            title="Share rows among threads",
            why="Rows of every stage are independent: give each OpenMP thread its share of them.",
            difficulty=1,
            priority=0.7,
            applies=_has_work,
        ),
        Move(
            name="vectorise",
            title="Vectorise all loops",
            why="Keep a vector of results, or of terms of the sum, in a register; write loops over rows for SIMD lanes "
            "and inline exponentials and the like as polynomials.",
            difficulty=3,
            priority=0.65,
        ),
        Move(
            name="fuse",
            title="Fuse stages, block by block",
            why="What one stage hands to the next in the same row stays in a small buffer next to the core: norms "
            "before a product, epilogues behind it, scores between softmax and weighted sum.",
            difficulty=3,
            priority=0.6,
            applies=_is_fusible,
        ),
        Move(
            name="tile",
            title="Register tile of several rows",
            why="A single accumulator waits for its own last addition, and each operand is used once per load; a tile "
            "of rows has independent sums and uses what it loads several times.",
            difficulty=2,
            priority=0.55,
            needs=("vectorise",),
            applies=_has_products,
        ),
        Move(
            name="lanes",
            title="Register tile of several vectors",
            why="Several vectors of columns per row of a tile use each value of the other operand several times.",
            difficulty=2,
            priority=0.45,
            needs=("vectorise",),
            applies=_has_products,
        ),
        Move(
            name="pack",
            title="Pack operands into panels",
            why="An operand whose columns lie far apart cannot be loaded as a vector; copied into panels once, it is "
            "read in order.",
            difficulty=3,
            priority=0.45,
            needs=("vectorise",),
            applies=lambda program: any(map(_is_strided, program.stages)),
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
            name="stream",
            title="Write outputs past the caches",
            why="An output that nobody reads soon need not be fetched before it is written, nor displace inputs.",
            difficulty=3,
            priority=0.4,
            needs=("vectorise",),
            applies=lambda program: bool(program.row_stages),
        ),
        Move(
            name="keep",
            title="Keep costly values of a row",
            why="A later loop over the row needs what an earlier one computed at some cost.",
            difficulty=2,
            priority=0.35,
            applies=lambda program: any(map(_meets_again, program.row_stages)),
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
            needs=("threads",),
            applies=_has_work,
        ),
        Move(
            name="dynamic",
            title="Hand blocks to free threads",
            why="Blocks of different length, or threads that meet other work, leave a thread waiting at the end.",
            difficulty=1,
            priority=0.25,
            needs=("threads",),
            applies=_has_work,
        ),
    ),
    parameters={"tile": (4, 8, 6), "lanes": (2, 4, 3), "rows": (32, 8, 128, 16, 4, 64, 2, 256)},
    at_once=frozenset({"fuse", "threads", "vectorise"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|epilogue|on chip|flash|single pass|one pass"),
        ("threads", r"thread|parallel|openmp"),
        ("vectorise", r"vectori[sz]|simd|avx"),
        ("tile", r"register (?:tile|block)|micro-?kernel|tile of .*rows"),
        ("lanes", r"several vectors|vectors per"),
        ("pack", r"\bpack"),
        ("skip", r"skip|masked (?:keys|columns)"),
        ("stream", r"streaming|non-temporal|past the cache"),
        ("keep", r"row buffer|keep .*values"),
        ("reuse", r"workspace|page fault"),
        ("rows", r"chunks? of rows|rows per block"),
        ("dynamic", r"dynamic|load balanc|work stealing"),
    ),
)
