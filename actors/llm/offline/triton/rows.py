"""Writes a program over rows and columns as one kernel: a program of the grid takes a block of rows.

A row that fits is held on chip, gone through once. Longer ones, or all if the plan says how many columns a block has,
are gone through in blocks of columns: one loop per reduction that others wait for and one for the outputs. Without
reductions blocks of columns are programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from actors.llm.offline.graph import REDUCTIONS, Node, Program, levels
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.expressions import Writer
from actors.llm.offline.triton.kernels import Kernel, indented, next_power_of_two

HELD_COLUMNS = 16_384
"""Longest row that is held on chip."""
BLOCK_ELEMENTS = 4096
"""Elements that a program takes at a time where the plan does not say how many rows or columns."""
_MOST_ELEMENTS = 32_768
"""Larger blocks do not fit into registers, whatever the plan says."""


def row_kernel(program: Program, plan: Plan, name: str) -> Kernel:
    """Return the kernel that computes all outputs of a program."""
    return _RowKernel(program, plan, name).kernel()


class _RowKernel:
    """One kernel under construction."""

    def __init__(self, program: Program, plan: Plan, name: str) -> None:
        self._program = program
        self._plan = plan
        self._name = name
        self._writer = Writer(program, plan)
        self._levels = levels(program)
        self._last = max(self._levels[output] for output in program.outputs)
        self._held = not plan.columns and program.columns <= HELD_COLUMNS
        self._columns = self._column_block()
        self._rows = self._row_block()
        self._row_mask = "row_ok" if program.rows % self._rows else ""
        self._column_mask = "column_ok" if program.columns % self._columns else ""
        self._mask = " & ".join(mask for mask in (self._row_mask, self._column_mask) if mask)
        self._flat = not program.reductions and not self._held

    def _column_block(self) -> int:
        longest = next_power_of_two(self._program.columns)
        return longest if self._held else min(self._plan.columns or BLOCK_ELEMENTS, longest)

    def _row_block(self) -> int:
        usual = self._plan.rows or max(1, BLOCK_ELEMENTS // self._columns)
        fitting = max(1, _MOST_ELEMENTS // self._columns)
        return min(next_power_of_two(usual), fitting, next_power_of_two(self._program.rows))

    def kernel(self) -> Kernel:
        """Return it."""
        program, plan = self._program, self._plan
        tiles = math.ceil(program.rows / self._rows)
        constants = {"R": program.rows, "C": program.columns, "ROWS": self._rows, "BLOCK": self._columns}
        body = self._tile()
        if plan.persistent and not self._flat:
            programs = min(plan.persistent, tiles)
            constants |= {"TILES": tiles, "PROGRAMS": programs}
            body = ["for tile in range(tl.program_id(0), TILES, PROGRAMS):", *indented(body)]
            tiles = programs
        else:
            body = ["tile = tl.program_id(0)", *body]
        grid = (tiles, math.ceil(program.columns / self._columns)) if self._flat else (tiles,)
        loaded = {node.name for node in program.nodes if node.op == "load"}
        tensors = tuple(tensor for tensor in program.tensors if tensor.role == "output" or tensor.name in loaded)
        return Kernel(name=self._name, tensors=tensors, constants=constants, body=(*self._scalars(), *body), grid=grid)

    def _tile(self) -> list[str]:
        """Return what is done for one block of rows."""
        wide = ".to(tl.int64)" if self._program.rows * self._program.columns >= 1 << 31 else ""
        lines = [f"row = tile{wide} * ROWS + tl.arange(0, ROWS)[:, None]"]
        if self._row_mask:
            lines.append("row_ok = row < R")
        if self._flat:
            lines += self._columns_at("tl.program_id(1) * BLOCK + ")
        elif self._held:
            lines += self._columns_at("")
        lines += self._row_values(0)
        for level in range(self._last):
            lines += self._reductions(level)
            lines += self._row_values(level + 1)
        return [*lines, *self._outputs()]

    def _columns_at(self, start: str) -> list[str]:
        masked = ["column_ok = column < C"] if self._column_mask else []
        return [f"column = {start}tl.arange(0, BLOCK)[None, :]", *masked]

    def _scalars(self) -> list[str]:
        nodes = enumerate(self._program.nodes)
        return [self._assigned(index) for index, node in nodes if node.kind == "scalar" and node.op != "const"]

    def _row_values(self, level: int) -> list[str]:
        """Return values per row that are known from this level on, reductions aside."""
        return [
            self._assigned(index)
            for index, node in enumerate(self._program.nodes)
            if node.kind == "row" and self._levels[index] == level and node.op not in REDUCTIONS
        ]

    def _assigned(self, index: int) -> str:
        node = self._program.nodes[index]
        return f"v{index} = {self._loaded(node) if node.op == 'load' else self._writer.operation(node)}"

    def _loaded(self, node: Node) -> str:
        place = {"full": "row * C + column", "vector": "column", "row": "row", "scalar": ""}[node.kind]
        mask = {"full": self._mask, "vector": self._column_mask, "row": self._row_mask, "scalar": ""}[node.kind]
        return self._writer.loaded(node, place, mask)

    def _reductions(self, level: int) -> list[str]:
        """Return the reductions that wait for `level` others, and what they need."""
        found = [index for index in self._program.reductions if self._levels[index] == level + 1]
        nodes = self._program.nodes
        needed = self._needed((nodes[index].args[0] for index in found), level)
        if self._held:
            results = [
                f"v{index} = {self._writer.reduced(nodes[index].op, f'v{nodes[index].args[0]}', self._column_mask)}"
                for index in found
            ]
            return [*needed, *results]
        starts = [f"a{index} = {self._writer.start(nodes[index].op)}" for index in found]
        taken = [
            self._writer.accumulated(nodes[index].op, f"a{index}", f"v{nodes[index].args[0]}", self._column_mask)
            for index in found
        ]
        ends = [f"v{index} = {self._writer.reduced(nodes[index].op, f'a{index}')}" for index in found]
        return [*starts, *self._loop([*needed, *taken]), *ends]

    def _outputs(self) -> list[str]:
        """Return the statements that compute what only outputs need, and the stores."""
        program = self._program
        tensors = [tensor for tensor in program.tensors if tensor.role == "output"]
        full, per_row = [], []
        for output, tensor in zip(program.outputs, tensors, strict=True):
            if program.nodes[output].kind == "full":
                full.append(self._writer.stored(tensor, "row * C + column", f"v{output}", self._mask))
            else:
                per_row.append(self._writer.stored(tensor, "row", f"v{output}", self._row_mask))
        if not full:
            return per_row
        needed = self._needed(
            (output for output in program.outputs if program.nodes[output].kind == "full"), self._last
        )
        lines = [*needed, *full]
        return [*(lines if self._held or self._flat else self._loop(lines)), *per_row]

    def _needed(self, targets: Iterable[int], level: int) -> list[str]:
        """Return what is to be computed per column for `targets`; a held row has what earlier levels computed."""
        found = self._per_column(targets)
        if self._held:
            found -= {index for earlier in range(level) for index in self._computed(earlier)}
        return [self._assigned(index) for index in sorted(found)]

    def _computed(self, level: int) -> set[int]:
        nodes = self._program.nodes
        reductions = (index for index in self._program.reductions if self._levels[index] == level + 1)
        return self._per_column(nodes[index].args[0] for index in reductions)

    def _per_column(self, targets: Iterable[int]) -> set[int]:
        """Return the nodes per column that `targets` depend on, themselves included."""
        found: set[int] = set()
        waiting = list(targets)
        while waiting:
            index = waiting.pop()
            node = self._program.nodes[index]
            if index not in found and node.kind in {"full", "vector"}:
                found.add(index)
                waiting.extend(node.args)
        return found

    def _loop(self, lines: list[str]) -> list[str]:
        ahead = f", num_stages={self._plan.stages}" if self._plan.stages else ""
        head = f"for start in tl.range(0, C, BLOCK{ahead}):"
        return [head, *indented([*self._columns_at("start + "), *lines])]
