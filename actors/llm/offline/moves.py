"""The transformations that the rules know, as actions: their names, when they apply, what they add to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from actors.llm.offline.graph import Program
from actors.llm.offline.plan import Plan

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType({
    "accumulators": (4, 2, 8, 3),
    "unroll": (2, 4, 3),
    "rows": (4, 16, 1, 64, 8, 32, 2),
    "columns": (512, 1024, 256, 2048, 4096),
    "prefetch": (1, 2, 4),
})  # fmt: skip
"""Fields of a plan that are numbers, and the values that are tried."""

_ONE_WORKER_ROWS = 2


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One transformation."""

    name: str
    """Field of the plan that it sets."""
    title: str
    why: str
    difficulty: int
    priority: float
    """V before anything was measured."""
    needs: tuple[str, ...] = ()
    """Moves that must come before it."""
    applies: Callable[[Program], bool]


MOVES = (
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
        priority=0.3,
        needs=("threads",),
        applies=lambda program: program.rows >= _ONE_WORKER_ROWS,
    ),
    Move(
        name="unroll",
        title="Work on several parts of a row in turns",
        why="Independent chains of operations hide the latency of divisions and polynomials.",
        difficulty=2,
        priority=0.3,
        needs=("fuse", "vectorise"),
        applies=lambda program: program.columns > 1,
    ),
    Move(
        name="stream",
        title="Write outputs past the caches",
        why="An output that nobody reads soon need not be fetched before it is written, nor displace inputs.",
        difficulty=3,
        priority=0.3,
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

BY_NAME: Mapping[str, Move] = MappingProxyType({move.name: move for move in MOVES})


def known_moves(program: Program) -> tuple[Move, ...]:
    """Return the moves that make sense for a program."""
    return tuple(move for move in MOVES if move.applies(program))


def with_needs(names: Iterable[str]) -> frozenset[str]:
    """Return the moves and whatever must come before them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(BY_NAME[name].needs)
    return frozenset(found)


def applied(plan: Plan, names: Iterable[str], values: Mapping[str, int]) -> Plan:
    """Return the plan with moves added; `values` gives the numbers of those that have one."""
    changes = {name: values.get(name, PARAMETERS[name][0]) if name in PARAMETERS else True for name in names}
    return msgspec.structs.replace(plan, **changes)
