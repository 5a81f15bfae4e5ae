"""The transformations that make sense for Triton on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from actors.llm.offline.graph import Program
from actors.llm.offline.moves import Catalogue, Move

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "warps": (8, 2, 16, 1),
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
        name="columns",
        title="Go through rows in blocks of columns",
        why="Long rows do not fit into registers: partial results per place of a block, reduced once at the end.",
        difficulty=2,
        priority=0.35,
        needs=("fuse",),
        applies=_has_long_rows,
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

CATALOGUE = Catalogue(
    moves=_MOVES,
    parameters=PARAMETERS,
    at_once=frozenset({"fuse", "warps"}),
    keywords=(
        ("fuse", r"fus(?:e|ing)|single kernel|one kernel|on chip"),
        ("warps", r"warps?\b"),
        ("rows", r"rows per program|several rows|multiple rows"),
        ("columns", r"column block|blocks? of columns|long rows"),
        ("stages", r"stages|pipelin|ahead"),
        ("persistent", r"persistent|fixed grid"),
        ("stream", r"evict|cache (?:hint|modifier)|streaming"),
    ),
)
