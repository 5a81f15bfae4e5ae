"""Writes work over rows and columns as one kernel: a program of the grid takes a block of rows.

A row that fits is held on chip, gone through once. Longer ones, or all if the plan says how many columns a block has,
are gone through in blocks of columns: one loop per reduction that others wait for and one for the outputs. The sum of a
softmax need not wait for its maximum (`online`): what was added up is scaled when a larger value turns up (Milakov and
Gimelshein 2018, section 3), here for every place of a block by itself. Without reductions blocks of columns are
programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from actors.llm.offline.graph import REDUCTIONS, Access, Node
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.expressions import Writer
from actors.llm.offline.triton.kernels import Kernel, indented, launch_options, next_power_of_two, used
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.places import Numbering, place
from actors.llm.offline.triton.work import RowWork, softmax_sums

HELD_COLUMNS = 16_384
"""Longest row that is held on chip."""
BLOCK_ELEMENTS = 4096
"""Elements that a program takes at a time where the plan does not say how many rows or columns."""
_MOST_ELEMENTS = 32_768
"""Larger blocks do not fit into registers, whatever the plan says."""
_BASE = ('base = tl.where(higher == float("-inf"), 0.0, higher)',)
"""Where nothing was seen yet but -inf: -inf less -inf is no number."""
_INT32_ELEMENTS = 1 << 31
"""Tensors with as many elements need addresses of 64 bits."""


def row_kernel(work: RowWork, plan: Plan, names: Names, name: str) -> Kernel:
    """Return the kernel that does some work."""
    return _RowKernel(work, plan, names, name).kernel()


class _RowKernel:
    """One kernel under construction."""

    def __init__(self, work: RowWork, plan: Plan, names: Names, name: str) -> None:
        self._work = work
        self._plan = plan
        self._name = name
        self._writer = Writer(work.nodes, names.tensors, names.real, plan)
        self._large = any(math.prod(names.tensors[access.name].shape) >= _INT32_ELEMENTS for access in work.accesses)
        self._row = Numbering("row", work.rows)
        self._column = Numbering("column", work.columns)
        self._levels = work.levels()
        self._sums: dict[int, int] = {}
        self._last = max(self._levels[store.node] for store in work.stores)
        held = HELD_COLUMNS if work.reductions else BLOCK_ELEMENTS
        self._held = not plan.columns and work.column_count <= held
        self._flat = not work.reductions and not self._held
        if plan.online and not self._held:
            self._sums = softmax_sums(work.nodes)
        self._early: set[int] = set()
        if plan.early and self._held:
            self._early = {index for index, node in enumerate(work.nodes) if (node.op, node.kind) == ("load", "full")}
        self._columns = self._column_block()
        self._rows = self._row_block()
        self._row_mask = "row_ok" if work.row_count % self._rows else ""
        self._column_mask = "column_ok" if work.column_count % self._columns else ""

    def _column_block(self) -> int:
        longest = next_power_of_two(self._work.column_count)
        return longest if self._held else min(self._plan.columns or BLOCK_ELEMENTS, longest)

    def _row_block(self) -> int:
        usual = self._plan.rows or max(1, BLOCK_ELEMENTS // self._columns)
        fitting = max(1, _MOST_ELEMENTS // self._columns)
        return min(next_power_of_two(usual), fitting, next_power_of_two(self._work.row_count))

    def kernel(self) -> Kernel:
        """Return it."""
        work, plan = self._work, self._plan
        tiles = math.ceil(work.row_count / self._rows)
        constants = {"R": work.row_count, "C": work.column_count, "ROWS": self._rows, "BLOCK": self._columns}
        body = self._tile()
        if plan.persistent and not self._flat:
            programs = min(plan.persistent, tiles)
            constants |= {"TILES": tiles, "PROGRAMS": programs}
            body = ["for tile in range(tl.program_id(0), TILES, PROGRAMS):", *indented(body)]
            tiles = programs
        else:
            body = ["tile = tl.program_id(0)", *body]
        blocks = math.ceil(work.column_count / self._columns)
        return Kernel(
            name=self._name,
            tensors=used(access.name for access in work.accesses),
            constants=constants,
            body=(*self._scalars(), *body),
            grid=(tiles, blocks) if self._flat else (tiles,),
            options=launch_options(plan, self._rows * self._columns),
        )

    def _tile(self) -> list[str]:
        """Return what is done for one block of rows."""
        wide = ".to(tl.int64)" if self._large else ""
        lines = [f"row = tile{wide} * ROWS + tl.arange(0, ROWS)[:, None]", *self._row.split()]
        if self._row_mask:
            lines.append("row_ok = row < R")
        if self._flat:
            lines += self._columns_at("tl.program_id(1) * BLOCK + ")
        elif self._held:
            lines += [*self._columns_at(""), *map(self._assigned, sorted(self._early))]
        lines += self._row_values(0)
        for level in range(self._last):
            lines += self._reductions(level)
            lines += self._row_values(level + 1)
        return [*lines, *self._stores()]

    def _columns_at(self, start: str) -> list[str]:
        masked = ["column_ok = column < C"] if self._column_mask else []
        return [f"column = {start}tl.arange(0, BLOCK)[None, :]", *masked, *self._column.split()]

    def _scalars(self) -> list[str]:
        nodes = enumerate(self._work.nodes)
        return [self._assigned(index) for index, node in nodes if node.kind == "scalar" and node.op != "const"]

    def _row_values(self, level: int) -> list[str]:
        """Return values per row that are known from this level on, reductions aside."""
        return [
            self._assigned(index)
            for index, node in enumerate(self._work.nodes)
            if node.kind == "row" and self._levels[index] == level and node.op not in REDUCTIONS
        ]

    def _assigned(self, index: int) -> str:
        node = self._work.nodes[index]
        if node.access is None:
            return f"v{index} = {self._writer.operation(node)}"
        return f"v{index} = {self._read(node, node.access)}"

    def _read(self, node: Node, access: Access) -> str:
        if node.op == "index":
            return self._writer.numbered(self._place(access))
        return self._writer.loaded(access.name, self._place(access), self._mask(access), once=node.kind == "full")

    def _place(self, access: Access) -> str:
        return place(access, [*self._row.axes, *self._column.axes])

    def _spread(self, access: Access) -> str:
        """Return the offset of what is stored: a block, also where there is a single element."""
        offset = self._place(access)
        alone = not (self._work.on_rows(access) or self._work.on_columns(access))
        return " + ".join(filter(None, ["row * 0", offset])) if alone else offset

    def _mask(self, access: Access) -> str:
        by_row = self._row_mask if self._work.on_rows(access) else ""
        by_column = self._column_mask if self._work.on_columns(access) else ""
        return " & ".join(mask for mask in (by_row, by_column) if mask)

    def _reductions(self, level: int) -> list[str]:
        """Return the reductions that wait for `level` others, and what they need."""
        nodes = self._work.nodes
        found = [index for index in self._work.reductions if self._levels[index] == level + 1]
        needed = self._needed((nodes[index].args[0] for index in found), level)
        if self._held:
            results = [
                f"v{index} = {self._writer.reduced(nodes[index].op, f'v{nodes[index].args[0]}', self._column_mask)}"
                for index in found
            ]
            return [*needed, *results]
        found = [index for index in found if index not in self._sums.values()]
        if not found:
            return []
        starts = [f"a{index} = {self._writer.start(nodes[index].op)}" for index in found]
        starts += [f"a{self._sums[index]} = {self._writer.start('sum')}" for index in found if index in self._sums]
        taken = [line for index in found for line in self._taken(index)]
        ends = [line for index in found for line in self._ended(index)]
        return [*starts, *self._loop([*needed, *taken]), *ends]

    def _taken(self, index: int) -> list[str]:
        """Return the statements that take a block of columns into the partial results of a reduction."""
        node, writer, mask = self._work.nodes[index], self._writer, self._column_mask
        value = f"v{node.args[0]}"
        if index not in self._sums:
            return [writer.accumulated(node.op, f"a{index}", value, mask)]
        total = f"a{self._sums[index]}"
        return [
            f"higher = tl.maximum(a{index}, {writer.chosen(node.op, value, mask)})",
            *_BASE,
            f"{total} *= {writer.arithmetic.call('tl.exp', f'a{index} - base')}",
            writer.accumulated("sum", total, writer.arithmetic.call("tl.exp", f"{value} - base"), mask),
            f"a{index} = higher",
        ]

    def _ended(self, index: int) -> list[str]:
        """Return the statements that bring the partial results of a reduction together."""
        writer = self._writer
        ends = [f"v{index} = {writer.reduced(self._work.nodes[index].op, f'a{index}')}"]
        if index in self._sums:
            total = f"a{self._sums[index]}"
            scaled = f"{total} * {writer.arithmetic.call('tl.exp', f'a{index} - base')}"
            ends += [f"higher = v{index}", *_BASE, f"v{self._sums[index]} = {writer.reduced('sum', f'({scaled})')}"]
        return ends

    def _stores(self) -> list[str]:
        """Return the statements that compute what only outputs need, and the stores."""
        full = [store for store in self._work.stores if self._work.on_columns(store.access)]
        stored = {
            store: self._writer.stored(
                store.access.name, self._spread(store.access), f"v{store.node}", self._mask(store.access)
            )
            for store in self._work.stores
        }
        per_row = [stored[store] for store in self._work.stores if store not in full]
        if not full:
            return per_row
        lines = [*self._needed((store.node for store in full), self._last), *(stored[store] for store in full)]
        return [*(lines if self._held or self._flat else self._loop(lines)), *per_row]

    def _needed(self, targets: Iterable[int], level: int) -> list[str]:
        """Return what is to be computed per column for `targets`; a held row has what earlier levels computed."""
        found = self._per_column(targets)
        found -= self._early
        if self._held:
            found -= {index for earlier in range(level) for index in self._computed(earlier)}
        return [self._assigned(index) for index in sorted(found)]

    def _computed(self, level: int) -> set[int]:
        nodes = self._work.nodes
        reductions = (index for index in self._work.reductions if self._levels[index] == level + 1)
        return self._per_column(nodes[index].args[0] for index in reductions)

    def _per_column(self, targets: Iterable[int]) -> set[int]:
        """Return the nodes per column that `targets` depend on, themselves included."""
        found: set[int] = set()
        waiting = list(targets)
        while waiting:
            index = waiting.pop()
            node = self._work.nodes[index]
            if index not in found and node.kind in {"full", "vector"}:
                found.add(index)
                waiting.extend(node.args)
        return found

    def _loop(self, lines: list[str]) -> list[str]:
        ahead = f", num_stages={self._plan.stages}" if self._plan.stages else ""
        head = f"for start in tl.range(0, C, BLOCK{ahead}):"
        return [head, *indented([*self._columns_at("start + "), *lines])]
