"""Row-wise kernels in Triton, fused or one per operation.

A row that fits is held on chip, gone through once. Longer ones, or all if the plan says how many columns a block has,
are gone through in blocks of columns: one loop per reduction that others wait for and one for the outputs. The sum of a
softmax need not wait for its maximum (`online`): what was added up is scaled when a larger value turns up (Milakov and
Gimelshein 2018, section 3), here for every place of a block by itself. Without reductions blocks of columns are
programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Kind, Node
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.expressions import Writer
from actors.llm.offline.triton.kernels import Kernel, indented, launch_options, next_power_of_two, used
from actors.llm.offline.triton.names import Names, Numbering, RowWork, Store, place, row_major, softmax_sums

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


def operation_kernels(work: RowWork, plan: Plan, names: Names, prefix: str = "") -> list[Kernel]:
    """Return the kernels in the order of their launches; the workspaces that they need are added to the names."""
    steps = _Steps(work, plan, names, prefix)
    for index, node in enumerate(work.nodes):
        if node.op not in {"const", "load", "index"} and node.kind != "scalar":
            steps.compute(index)
    for position, store in enumerate(work.stores):
        steps.copy(position, store)
    return steps.kernels


class _Steps:
    """Operations as work of their own, whose inputs are what earlier ones wrote."""

    def __init__(self, work: RowWork, plan: Plan, names: Names, prefix: str) -> None:
        self._work = work
        self._plan = msgspec.structs.replace(plan, rows=0, columns=0, persistent=0)
        self._names = names
        self._prefix = prefix
        self._results: dict[int, Access] = {}
        self.kernels: list[Kernel] = []

    def compute(self, index: int) -> None:
        """Add the kernel of one operation. It writes where the value is wanted, if that has the computing type."""
        node = self._work.nodes[index]
        wanted = [
            store.access for store in self._work.stores
            if store.node == index and self._names.tensors[store.access.name].dtype == self._names.real
        ]  # fmt: skip
        target = wanted[0] if wanted else self._workspace(index)
        spread: Kind = "full" if node.op in REDUCTIONS else node.kind
        self._add(f"{node.op}_{index}", spread, index, target)
        self._results[index] = target

    def copy(self, position: int, store: Store) -> None:
        """Add the kernel that writes an output whose value stands elsewhere."""
        if self._results.get(store.node) != store.access:
            kind = self._work.nodes[store.node].kind
            both = self._work.on_columns(store.access) and self._work.on_rows(store.access)
            self._add(f"store_{position}", "full" if both or kind == "scalar" else kind, store.node, store.access,
                      copied=True)  # fmt: skip

    def _workspace(self, index: int) -> Access:
        work = self._work
        kind = work.nodes[index].kind
        sizes = [
            size if (kind in on) else 1
            for axes, on in ((work.rows, {"row", "full"}), (work.columns, {"vector", "full"}))
            for size in axes
        ]
        strides = [stride if size > 1 else 0 for stride, size in zip(row_major(sizes), sizes, strict=True)]
        name = self._names.workspace(f"workspace_{self._prefix}{index}", tuple(size for size in sizes if size > 1))
        return Access(name, 0, tuple(strides))

    def _add(self, name: str, spread: Kind, index: int, target: Access, *, copied: bool = False) -> None:
        """Add a kernel over what `spread` depends on: of a row value only the rows, of a vector only the columns."""
        work = self._work
        step = _Step(work, spread, self._results)
        result = step.operand(index) if copied else step.applied(work.nodes[index])
        rows, columns = step.axes
        small = RowWork(rows=rows, columns=columns, nodes=tuple(step.nodes), stores=(Store(result, step.kept(target)),))
        self.kernels.append(row_kernel(small, self._plan, self._names, f"{self._prefix}{name}"))


class _Step:
    """The nodes of one kernel."""

    def __init__(self, work: RowWork, spread: Kind, results: dict[int, Access]) -> None:
        self._work = work
        self._spread = spread
        self._results = results
        self._places: dict[int, int] = {}
        self.nodes: list[Node] = []

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of the axes along rows and columns; what depends on rows only, or columns only, is a single row."""
        match self._spread:
            case "row":
                return (), self._work.rows
            case "vector":
                return (), self._work.columns
            case _:
                return self._work.rows, self._work.columns

    def kept(self, access: Access) -> Access:
        """Return an access with the strides of the axes that there are."""
        count = len(self._work.rows)
        match self._spread:
            case "row":
                strides = access.strides[:count]
            case "vector":
                strides = access.strides[count:]
            case _:
                strides = access.strides
        return msgspec.structs.replace(access, strides=strides)

    def operand(self, index: int) -> int:
        """Return where a value stands that is loaded, or computed anew if it is a scalar."""
        if index not in self._places:
            node = self._work.nodes[index]
            if node.op == "const":
                place = self._placed(node)
            elif node.access is not None:
                place = self._placed(Node(node.op, kind=self._kind(node.kind), access=self.kept(node.access)))
            elif node.kind == "scalar":
                place = self.applied(node)
            else:
                place = self._placed(Node("load", kind=self._kind(node.kind), access=self.kept(self._results[index])))
            self._places[index] = place
        return self._places[index]

    def applied(self, node: Node) -> int:
        """Return where an operation on operands stands."""
        args = tuple(self.operand(arg) for arg in node.args)
        kind: Kind = "row" if node.op in REDUCTIONS else self._kind(node.kind)
        return self._placed(Node(node.op, args, kind))

    def _placed(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _kind(self, kind: Kind) -> Kind:
        return "full" if kind == self._spread else kind
