"""One kernel per row stage in Triton: a program holds one or several whole rows on chip.

Stages without reductions need no whole rows: long ones are cut into blocks of columns, programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages import REDUCTIONS, Access, Node, NoRuleError, Stage, TensorInfo, row_major
from actors.llm.offline.triton.expressions import Writer, pointer

_BLOCK_ELEMENTS = 4096
"""Elements of a program's block, if the plan gives no number of rows."""
_MOST_ELEMENTS = 65_536
"""Larger blocks do not fit on chip."""
_ELEMENTS_PER_WARP = 1024
"""32 for each thread: eight loads of 16 bytes in flight at once, and a few such blocks fit into registers."""
_MOST_WARPS = 16
_INT32_ELEMENTS = 1 << 31
"""Tensors with as many elements need addresses of 64 bits."""


class RowKernel:
    """A `@triton.jit` function and its launch."""

    def __init__(self, stage: Stage, plan: Plan, tensors: dict[str, TensorInfo], real: str, name: str) -> None:
        """Choose the form of the code.

        Args:
            stage: accesses have the source's names.
            plan: plan of the program.
            tensors: tensors by their names in the source.
            real: dtype of the computation.
            name: name of the kernel.

        Raises:
            NoRuleError: a row is too long to be held on chip.
        """
        self.name = name
        self._stage, self._plan = stage, plan
        self._writer = Writer(stage.nodes, tensors, real, plan)
        self._row_count, self._column_count = math.prod(stage.rows), math.prod(stage.columns)
        self._levels = stage.levels()
        held = _MOST_ELEMENTS if stage.reductions else _BLOCK_ELEMENTS
        if stage.reductions and self._column_count > held:
            raise NoRuleError(f"reductions over more than {held} columns in Triton")
        self._is_flat = self._column_count > held
        self._columns = min(_next_power_of_two(self._column_count), held)
        usual = plan.rows or max(1, _BLOCK_ELEMENTS // self._columns)
        most = max(1, _MOST_ELEMENTS // self._columns)
        self._rows = min(_next_power_of_two(usual), most, _next_power_of_two(self._row_count))
        self._row_mask = "row_ok" if self._row_count % self._rows else ""
        self._column_mask = "column_ok" if self._column_count % self._columns else ""
        self.tensors = tuple(dict.fromkeys(access.name for access in (*stage.reads, stage.target)))
        self._is_large = any(math.prod(tensors[one].shape) >= _INT32_ELEMENTS for one in self.tensors)
        self._variables = [*_axes("row", stage.rows), *_axes("column", stage.columns)]

    def definition(self) -> str:
        """Return the function."""
        arguments = [*map(pointer, self.tensors), *(f"{name}: tl.constexpr" for name in self._constants)]
        body = self._tile()
        if "TILES" in self._constants:
            body = ["for tile in range(tl.program_id(0), TILES, PROGRAMS):", *indented(body)]
        else:
            body = ["tile = tl.program_id(0)", *body]
        head = [f"def {self.name}(", *indented(f"{argument}," for argument in arguments), "):"]
        return "\n".join(["@triton.jit", *head, *indented([*self._values(("scalar",), 0), *body])])

    def launch(self, name: str) -> str:
        """Return the statement that launches it under a name, on the tensors."""
        tiles = self._constants.get("PROGRAMS", math.ceil(self._row_count / self._rows))
        grid = f"{tiles}, {math.ceil(self._column_count / self._columns)}" if self._is_flat else f"{tiles},"
        usual = min(_MOST_WARPS, max(1, self._rows * self._columns // _ELEMENTS_PER_WARP))
        named = {**self._constants, "num_warps": self._plan.warps or usual}
        return f"{name}[({grid})]({', '.join([*self.tensors, *(f'{key}={value}' for key, value in named.items())])})"

    @property
    def _constants(self) -> dict[str, int]:
        found = {"R": self._row_count, "C": self._column_count, "ROWS": self._rows, "BLOCK": self._columns}
        if self._plan.persistent and not self._is_flat:
            tiles = math.ceil(self._row_count / self._rows)
            found |= {"TILES": tiles, "PROGRAMS": min(self._plan.persistent, tiles)}
        return found

    def _tile(self) -> list[str]:
        """Return the statements for one block of rows."""
        first = "tl.program_id(1) * BLOCK + " if self._is_flat else ""
        lines = [
            f"row = tile{'.to(tl.int64)' if self._is_large else ''} * ROWS + tl.arange(0, ROWS)[:, None]",
            *_split("row", self._stage.rows),
            *(["row_ok = row < R"] if self._row_mask else []),
            f"column = {first}tl.arange(0, BLOCK)[None, :]",
            *_split("column", self._stage.columns),
            *(["column_ok = column < C"] if self._column_mask else []),
        ]
        nodes, known = self._stage.nodes, set[int]()
        if self._plan.early:
            loads = [at for at, node in enumerate(nodes) if (node.op, node.kind) == ("load", "full")]
            lines += self._assigned(loads, known)
        for level in range(self._levels[self._stage.output] + 1):
            lines += self._values(("row",), level)
            found = [at for at in self._stage.reductions if self._levels[at] == level + 1]
            targets = [nodes[at].args[0] for at in found]
            last = level == self._levels[self._stage.output]
            needed = self._stage.needed([self._stage.output] if last else targets, ("full", "vector"))
            lines += self._assigned(needed, known)
            if not last:
                lines += [f"v{at} = {self._reduced(nodes[at])}" for at in found]
        return [*lines, self._store()]

    def _assigned(self, indices: Iterable[int], known: set[int]) -> list[str]:
        """Return the statements that compute nodes which are not known yet."""
        fresh = [at for at in indices if at not in known]
        known.update(fresh)
        return [f"v{at} = {self._expression(at)}" for at in fresh if self._stage.nodes[at].op != "const"]

    def _values(self, kinds: Sequence[str], level: int) -> list[str]:
        """Return the statements for nodes of some kinds that are known from a level on, without reductions."""
        return self._assigned(
            (
                at
                for at, node in enumerate(self._stage.nodes)
                if node.kind in kinds and self._levels[at] == level and node.op not in REDUCTIONS
            ),
            set(),
        )

    def _reduced(self, node: Node) -> str:
        return self._writer.reduced(node.op, f"v{node.args[0]}", self._column_mask)

    def _expression(self, index: int) -> str:
        node = self._stage.nodes[index]
        if node.access is None:
            return self._writer.operation(node)
        place = self._place(node.access)
        if node.op == "index":
            return self._writer.numbered(place)
        return self._writer.loaded(node.access.name, place, self._mask(node.access), once=node.kind == "full")

    def _store(self) -> str:
        target = self._stage.target
        alone = [] if any(target.strides) else ["row * 0"]
        place = " + ".join(filter(None, [*alone, self._place(target)]))
        return self._writer.stored(target.name, place, f"v{self._stage.output}", self._mask(target))

    def _place(self, access: Access) -> str:
        """Return the offset of an element, in elements; empty for the first of a tensor."""
        pairs = zip(self._variables, access.strides, strict=True)
        terms = [name if stride == 1 else f"{name} * {stride}" for name, stride in pairs if stride]
        return " + ".join([*terms, *([str(access.offset)] if access.offset else [])])

    def _mask(self, access: Access) -> str:
        split = len(self._stage.rows)
        by_row = self._row_mask if any(access.strides[:split]) else ""
        by_column = self._column_mask if any(access.strides[split:]) else ""
        return " & ".join(filter(None, (by_row, by_column)))


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" if line else line for line in lines]


def _next_power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _axes(name: str, sizes: tuple[int, ...]) -> list[str]:
    """Return the variables that number the elements of each axis."""
    return [name] if len(sizes) == 1 else [f"{name}_{axis}" for axis in range(len(sizes))]


def _split(name: str, sizes: tuple[int, ...]) -> list[str]:
    """Return the statements that split one running number into the variables of the axes."""
    if len(sizes) <= 1:
        return []
    lines = []
    for axis, (variable, inner) in enumerate(zip(_axes(name, sizes), row_major(sizes), strict=True)):
        text = name if inner == 1 else f"{name} // {inner}"
        lines.append(f"{variable} = {text}" if axis == 0 else f"{variable} = {text} % {sizes[axis]}")
    return lines
