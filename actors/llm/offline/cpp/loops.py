"""Loops over columns as C++ lines: SIMD, parts of the row in turns, and the rest that does not divide."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from actors.llm.offline.graph import Program

Body = Callable[[int], list[str]]
"""Statements for one column; the argument is the number of the part of the row, the C++ name of the column is `i`."""


class ColumnLoop(msgspec.Struct, frozen=True, kw_only=True):
    """How one loop over columns is written."""

    count: str
    """C++ expression: how many columns."""
    start: str = ""
    """C++ expression: the first column; empty for 0."""
    parts: int = 1
    vectorise: bool = False
    clauses: str = ""
    """Of `omp simd`: its reductions."""


def column_loop(loop: ColumnLoop, body: Body) -> list[str]:
    """Return the loop. With several parts one turn does one column of each; what is left over goes to part 0."""
    pragma = [f"#pragma omp simd{loop.clauses}"] if loop.vectorise else []
    if loop.parts == 1:
        return [*pragma, f"for (int64_t c = 0; c < {loop.count}; ++c) {{", *_column(loop, "c", body, 0), "}"]
    part = f"({loop.count}) / {loop.parts}"
    turns = [line for number in range(loop.parts) for line in _part(loop, number, body)]
    return [
        "{",
        *indented([
            f"const int64_t part = {part};",
            *pragma,
            "for (int64_t c = 0; c < part; ++c) {",
            *indented(turns),
            "}",
            f"for (int64_t c = part * {loop.parts}; c < {loop.count}; ++c) {{",
            *_column(loop, "c", body, 0),
            "}",
        ]),
        "}",
    ]  # fmt: skip


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper; pragmas may stand anywhere."""
    return [f"    {line}" if line else line for line in lines]


def needed_columns(program: Program, targets: Iterable[int], stops: frozenset[int] = frozenset()) -> list[int]:
    """Return the nodes per column that `targets` need, in order; nothing below `stops` is needed.

    Rows and scalars are known by the time that a loop over columns runs.
    """
    found: set[int] = set()
    waiting = list(targets)
    while waiting:
        index = waiting.pop()
        node = program.nodes[index]
        if index in found or node.kind not in {"full", "vector"}:
            continue
        found.add(index)
        if index not in stops:
            waiting.extend(node.args)
    return sorted(found)


def _part(loop: ColumnLoop, number: int, body: Body) -> list[str]:
    column = f"c + part * {number}" if number else "c"
    return ["{", *_column(loop, column, body, number), "}"]


def _column(loop: ColumnLoop, column: str, body: Body, number: int) -> list[str]:
    index = f"{loop.start} + {column}" if loop.start else column
    return indented([f"const int64_t i = {index};", *body(number)])
