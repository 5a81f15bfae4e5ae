"""The transformations that make sense for Triton on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType

from actors.llm.offline.graph import REDUCTIONS, Program
from actors.llm.offline.plan import Catalogue, Move
from actors.llm.offline.stages.ir import Contraction, Staged
from actors.llm.offline.triton.codegen import siblings
from actors.llm.offline.triton.contraction import follows
from actors.llm.offline.triton.names import softmax_sums

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "warps": (8, 16, 4, 2, 1),
    "rows": (1, 4, 2, 8, 16),
    "columns": (1024, 2048, 4096, 512, 8192),
    "stages": (3, 2, 4),
    "persistent": (264, 132, 528, 1056),
})  # fmt: skip
"""Fields of a plan that are numbers, and the values that are tried.

`persistent` counts programs: multiples of 132, the multiprocessors of an H100 or H200.
"""


def _has_rows(program: Program) -> bool:
    return program.rows > 1


def _reads_much(program: Program) -> bool:
    """Say whether several inputs have a value for every column, and something is reduced."""
    loads = sum((node.op, node.kind) == ("load", "full") for node in program.nodes)
    return loads > 1 and any(node.op in REDUCTIONS for node in program.nodes)


def _has_long_rows(program: Program) -> bool:
    return program.columns > min(PARAMETERS["columns"])


_MOVES: tuple[Move[Program], ...] = (
    Move(
        name="fuse",
        title="Fuse all operations into one kernel",
        why="Every intermediate tensor costs a write and a read of memory, and every kernel a launch; hold a row on "
        "chip, reduce it there and store nothing but the outputs.",
        difficulty=2,
        priority=0.8,
        applies=lambda program: len(program.nodes) > 2,
    ),
    Move(
        name="warps",
        title="Choose the warps per program",
        why="More warps share a row's registers and hide more latency; fewer make reductions cheaper.",
        difficulty=1,
        priority=0.55,
        applies=lambda _: True,
    ),
    Move(
        name="rows",
        title="Choose the rows per program",
        why="Short rows leave a program too little to do; long ones spill registers if several share a program.",
        difficulty=1,
        priority=0.5,
        needs=("fuse",),
        applies=_has_rows,
    ),
    Move(
        name="early",
        title="Ask for a row's inputs all at once",
        why="A reduction waits for its input with nothing else under way: what is needed only after it can be on its "
        "way meanwhile, at the price of registers.",
        difficulty=1,
        priority=0.45,
        needs=("fuse",),
        applies=_reads_much,
    ),
    Move(
        name="columns",
        title="Go through rows in blocks of columns",
        why="Long rows do not fit into registers: partial results per place of a block, reduced once at the end.",
        difficulty=2,
        priority=0.35,
        needs=("fuse",),
        applies=_has_long_rows,
    ),
    Move(
        name="online",
        title="Find a softmax's maximum and sum in one pass",
        why="The sum so far is scaled when a larger value turns up: a row that does not fit on chip is read twice "
        "instead of three times.",
        difficulty=3,
        priority=0.4,
        needs=("fuse", "columns"),
        applies=lambda program: _has_long_rows(program) and bool(softmax_sums(program.nodes)),
    ),
    Move(
        name="stages",
        title="Load the next blocks of columns ahead",
        why="A pipelined loop asks for the next blocks while it works on this one.",
        difficulty=2,
        priority=0.3,
        needs=("fuse", "columns"),
        applies=_has_long_rows,
    ),
    Move(
        name="persistent",
        title="Let a fixed grid take the rows in turns",
        why="As many programs as the device holds at once, each with many rows, save the start of thousands.",
        difficulty=2,
        priority=0.3,
        needs=("fuse",),
        applies=_has_rows,
    ),
    Move(
        name="stream",
        title="Keep what is used once out of the caches",
        why="Inputs that are read once and outputs that nobody reads soon need not displace weights.",
        difficulty=1,
        priority=0.25,
        applies=lambda program: any(program.nodes[output].kind == "full" for output in program.outputs),
    ),
)

STAGED_PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "block_m": (128, 32),
    "block_n": (128, 32, 256),
    "block_k": (64, 16, 128),
    "warps": (8, 4, 2),
    "stages": (3, 4, 2),
    "group": (8, 4, 16),
})  # fmt: skip
_MANY_ROWS = 1024
"""Outermost size from which the order of the tiles can matter: both operands of fewer stay in the cache anyway."""


def _has_siblings(program: Staged) -> bool:
    products = dict(enumerate(program.contractions))
    stages = itertools.product(program.contractions, program.row_stages)
    return any(follows(stage, rows, program) and siblings(stage, rows, program, products) for stage, rows in stages)


def _operand_dtypes(program: Staged, stage: Contraction) -> set[str]:
    return {program.sources[access.name].dtype for access in stage.reads}


_STAGED_MOVES: tuple[Move[Staged], ...] = (
    Move(
        name="fuse",
        title="Finish products on their tiles, and rows in one kernel",
        why="What is done to every element of a product can be done before it leaves the chip, and a normalisation is "
        "one kernel, not one per operation.",
        difficulty=2,
        priority=0.7,
        applies=lambda program: bool(program.row_stages),
    ),
    Move(
        name="together",
        title="Compute products that share an operand together",
        why="Gate and value are products of the same rows with two matrices: read the rows once, and combine the "
        "results where they are.",
        difficulty=3,
        priority=0.45,
        needs=("fuse",),
        applies=_has_siblings,
    ),
    Move(
        name="tensor_cores",
        title="Multiply float32 on the tensor cores",
        why="Three products of tf32, of the upper and lower halves of each number, are as exact as one of float32 and "
        "several times faster.",
        difficulty=2,
        priority=0.65,
        applies=lambda program: any("float32" in _operand_dtypes(program, stage) for stage in program.contractions),
    ),
    Move(
        name="block_m",
        title="Choose the rows of a tile",
        why="A larger tile reads its operands fewer times from memory; too large ones leave multiprocessors idle.",
        difficulty=1,
        priority=0.6,
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="block_n",
        title="Choose the columns of a tile",
        why="As for its rows: fewer reads against fewer programs.",
        difficulty=1,
        priority=0.55,
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="block_k",
        title="Choose the length of a step along the sum",
        why="Longer steps mean fewer rounds of loading and more shared memory per round.",
        difficulty=1,
        priority=0.4,
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="warps",
        title="Choose the warps per program",
        why="More warps share a tile's registers; fewer have more of them each.",
        difficulty=1,
        priority=0.5,
        applies=lambda _: True,
    ),
    Move(
        name="stages",
        title="Load the next steps along the sum ahead",
        why="A pipelined loop asks for the next blocks while the tensor cores work on this one.",
        difficulty=2,
        priority=0.45,
        applies=lambda program: bool(program.contractions),
    ),
    Move(
        name="group",
        title="Take tiles in groups that share columns",
        why="Tiles that are computed at the same time then need the same blocks of an operand, in the cache.",
        difficulty=2,
        priority=0.35,
        applies=lambda program: any(stage.outer[0] >= _MANY_ROWS for stage in program.contractions),
    ),
)
STAGED_CATALOGUE = Catalogue(
    moves=_STAGED_MOVES,
    parameters=STAGED_PARAMETERS,
    at_once=frozenset({"fuse", "tensor_cores", "block_m", "block_n"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|epilogue|single kernel|one kernel"),
        ("together", r"share an operand|same rows|gate and value"),
        ("tensor_cores", r"tensor cores?|tf32"),
        ("block_m", r"tile|block_m|rows of a tile"),
        ("block_n", r"block_n|columns of a tile"),
        ("block_k", r"block_k|steps? along the sum"),
        ("warps", r"warps?\b"),
        ("stages", r"stages|pipelin|ahead"),
        ("group", r"group(?:ed|ing|s)? .*tiles|tiles in groups|swizzl|l2"),
    ),
)

CATALOGUE = Catalogue(
    moves=_MOVES,
    parameters=PARAMETERS,
    at_once=frozenset({"fuse", "warps"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|single kernel|one kernel|on chip"),
        ("warps", r"warps?\b"),
        ("rows", r"rows per program|several rows|multiple rows"),
        ("early", r"all at once|all loads|loads? first|hoist"),
        ("columns", r"column block|blocks? of columns|long rows"),
        ("online", r"online|one pass|single pass"),
        ("stages", r"stages|pipelin|ahead"),
        ("persistent", r"persistent|fixed grid"),
        ("stream", r"evict|cache (?:hint|modifier)|streaming"),
    ),
)
