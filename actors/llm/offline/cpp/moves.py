"""The transformations that make sense for C++ on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from actors.llm.offline.graph import Program
from actors.llm.offline.plan import Catalogue, Move

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "accumulators": (4, 2, 8, 3),
    "unroll": (2, 4, 3),
    "rows": (4, 16, 1, 64, 8, 32, 2),
    "columns": (512, 1024, 256, 2048, 4096),
    "prefetch": (1, 2, 4),
})  # fmt: skip
"""Fields of a plan that are numbers, and the values that are tried."""

_ONE_WORKER_ROWS = 2

_MOVES: tuple[Move[Program], ...] = (
    Move(
        name="fuse",
        title="Fuse the passes over a row",
        why="Every intermediate tensor costs a write and a read of memory; go through a row once per reduction and "
        "once for the outputs, and store nothing else.",
        difficulty=2,
        priority=0.75,
        applies=lambda program: len(program.nodes) > 2,
    ),
    Move(
        name="threads",
        title="Share rows among threads",
        why="Rows are independent: give each OpenMP thread its share of them.",
        difficulty=1,
        priority=0.7,
        applies=lambda program: program.rows >= _ONE_WORKER_ROWS,
    ),
    Move(
        name="vectorise",
        title="Vectorise the loops over columns",
        why="Write the loops for SIMD lanes, reductions included, and inline exponentials and the like as polynomials: "
        "calls of libm keep a loop scalar.",
        difficulty=3,
        priority=0.65,
        applies=lambda _: True,
    ),
    Move(
        name="keep",
        title="Keep costly values of a row in a buffer",
        why="A later loop over the row needs what an earlier one computed at some cost; a buffer of one row stays in "
        "the first-level cache.",
        difficulty=2,
        priority=0.45,
        needs=("fuse",),
        applies=lambda program: program.passes > 1 and program.costly,
    ),
    Move(
        name="accumulators",
        title="Split reductions over several accumulators",
        why="A single accumulator waits for its own last addition; several over parts of the row do not.",
        difficulty=2,
        priority=0.4,
        needs=("fuse",),
        applies=lambda program: bool(program.reductions),
    ),
    Move(
        name="rows",
        title="Hand out rows in small chunks",
        why="Threads that meet other work on their core fall behind; chunks of rows in turns level that out and keep "
        "threads close together in memory.",
        difficulty=1,
        priority=0.25,
        needs=("threads",),
        applies=lambda program: program.rows >= _ONE_WORKER_ROWS,
    ),
    Move(
        name="unroll",
        title="Work on several parts of a row in turns",
        why="Independent chains of operations hide the latency of divisions and polynomials.",
        difficulty=2,
        priority=0.25,
        needs=("fuse", "vectorise"),
        applies=lambda program: program.columns > 1,
    ),
    Move(
        name="stream",
        title="Write outputs past the caches",
        why="An output that nobody reads soon need not be fetched before it is written, nor displace inputs.",
        difficulty=3,
        priority=0.4,
        needs=("fuse", "vectorise"),
        applies=lambda program: any(program.nodes[output].kind == "full" for output in program.outputs),
    ),
    Move(
        name="columns",
        title="Write outputs in blocks of columns",
        why="Short blocks keep what is being written next to the core.",
        difficulty=2,
        priority=0.2,
        needs=("fuse",),
        applies=lambda program: program.columns > min(PARAMETERS["columns"]),
    ),
    Move(
        name="prefetch",
        title="Prefetch the inputs of the next rows",
        why="The hardware prefetcher starts anew with every row and every input; asking ahead hides that.",
        difficulty=2,
        priority=0.2,
        needs=("fuse",),
        applies=lambda program: program.rows >= _ONE_WORKER_ROWS,
    ),
)

CATALOGUE = Catalogue(
    moves=_MOVES,
    parameters=PARAMETERS,
    at_once=frozenset({"fuse", "threads", "vectorise"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|single pass|one pass"),
        ("threads", r"thread|parallel|openmp"),
        ("vectorise", r"vectori[sz]|simd|avx"),
        ("accumulators", r"accumulators|partial sums"),
        ("keep", r"row buffer|keep .*values"),
        ("stream", r"streaming|non-temporal|past the cache"),
        ("unroll", r"unroll"),
        ("columns", r"column block|blocks? of columns|tile"),
        ("prefetch", r"prefetch"),
    ),
)
