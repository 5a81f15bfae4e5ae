"""Row stages in C++, and the places of values in memory.

Variables of a block: `o0`, `o1`, ... number the outer row axes, `start` is the block's first row along the last one and
`count` how many rows it has; `u` is a row of the block.
"""

from __future__ import annotations

import msgspec

from actors.llm.offline.cpp.expressions import C_TYPES, Writer
from actors.llm.offline.cpp.rows import RowLoops, indented
from actors.llm.offline.graph import Access, Node, Program, TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Bound, RowStage, Staged


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of a tensor in a block."""

    tensor: TensorInfo
    pointer: str
    """C++ expression: the tensor's data, or the buffer of the block."""
    start: str
    """C++ expression: offset of the block's first row."""
    row: int
    """Stride from row to row of the block."""
    columns: tuple[int, ...]
    """Strides along what comes after the rows."""
    written: bool

    @property
    def kind(self) -> str:
        """The C++ type of an element."""
        return C_TYPES[self.tensor.dtype]

    def declared(self, name: str) -> str:
        """Return the statement that gives the block's first element a name."""
        const = "" if self.written else "const "
        start = f" + {self.start}" if self.start else ""
        return f"{const}{self.kind}* __restrict {name} = {self.pointer}{start};"

    def element(self, column: str) -> str:
        """Return the offset of an element of row `u`; `column` is its offset in the row, empty for none."""
        row = "" if not self.row else "u" if self.row == 1 else f"u * {self.row}"
        return " + ".join(filter(None, (row, column))) or "0"


class Places:
    """Where all tensors lie for the groups of a program."""

    def __init__(self, program: Staged, names: dict[tuple[bool, str], str]) -> None:
        """Set it up.

        Args:
            program: whose tensors they are.
            names: C++ names of the tensors' data; the first part of a key is true for outputs.
        """
        self._sources, self._targets = program.sources, program.targets
        self._names = names
        self.rows: tuple[int, ...] = ()
        self._local: dict[str, int] = {}

    def enter(self, rows: tuple[int, ...], local: dict[str, int]) -> None:
        """Go on to another group: its row axes, and the elements per row of the values that it keeps in buffers."""
        self.rows = rows
        self._local = local

    def place(self, access: Access, row_axes: int, *, written: bool = False) -> Place:
        """Return where a stage's access lies; `row_axes` of the stage number its rows."""
        tensors = self._targets if written else self._sources
        tensor = tensors[access.name]
        if access.name in self._local:
            return Place(tensor=tensor, pointer=local_name(access.name), start="", row=self._local[access.name],
                         columns=access.strides[row_axes:], written=written)  # fmt: skip
        number = self.number(access, row_axes)
        name = self._names[tensor.role == "output", access.name]
        return msgspec.structs.replace(number, tensor=tensor, pointer=name, written=written)

    def number(self, access: Access, row_axes: int) -> Place:
        """Return the offset itself."""
        strides = access.strides[:row_axes]
        terms = [str(access.offset)] if access.offset else []
        terms += [_times(f"o{axis}", stride) for axis, stride in enumerate(strides[:-1]) if stride]
        terms += [_times("start", strides[-1])] if strides[-1:] != (0,) and strides else []
        return Place(
            tensor=TensorInfo(name="", role="value", shape=(), dtype="float32"),
            pointer="",
            start=" + ".join(terms),
            row=strides[-1] if strides else 0,
            columns=access.strides[row_axes:],
            written=False,
        )


def local_name(name: str) -> str:
    """Return the C++ name of the buffer for a value."""
    return f"block_of_{name.lstrip('%')}"


def _times(name: str, stride: int) -> str:
    return name if stride == 1 else f"{name} * {stride}"


class StageRows(RowLoops):
    """A row stage as loops over the columns of row `u` of a block."""

    def __init__(self, stage: RowStage, plan: Plan, writer: Writer, places: Places) -> None:
        """Set the writer up.

        Args:
            stage: what to write.
            plan: how.
            writer: of expressions.
            places: where the tensors lie.
        """
        self._stage = stage
        self._places = places
        self._target = places.place(stage.target, len(places.rows), written=True)
        self._loads: dict[Node, Place] = {
            node: places.place(node.access, len(places.rows))
            for node in stage.nodes
            if node.op == "load" and node.access is not None
        }
        columns = 1
        for size in stage.columns:
            columns *= size
        program = Program(
            nodes=stage.nodes, outputs=(stage.output,), rows=1, columns=columns, tensors=(self._target.tensor,)
        )
        plain = msgspec.structs.replace(plan, stream=False, columns=0, prefetch=0)
        super().__init__(program, plain, writer)

    def lines(self, *, bounded: bool) -> list[str]:
        """Return the statements for all rows of a block; `bounded`: up to the C++ variable `limit` of the columns."""
        names = [f"p{number}" for number in range(len(self._loads))]
        pointers = [place.declared(name) for name, place in zip(names, self._loads.values(), strict=True)]
        self._named = dict(zip(self._loads, names, strict=True))
        count = "limit" if bounded else str(self._program.columns)
        kept = self._buffers()
        return [
            *pointers,
            self._target.declared("to"),
            f"[[maybe_unused]] const int64_t C = {count};",
            *self._scalars(),
            *kept,
            "for (int64_t u = 0; u < count; ++u) {",
            *indented(self.row()),
            "}",
        ]

    def limit(self, bound: Bound) -> list[str]:
        """Return the statements that find the columns to compute for a block: up to the longest of its rows."""
        names = [f"p{number}" for number in range(len(self._loads))]
        self._named = dict(zip(self._loads, names, strict=True))
        needed = self._needed_rows(bound.place)
        pointers = [
            self._loads[self._program.nodes[index]].declared(self._named[self._program.nodes[index]])
            for index in needed
            if self._program.nodes[index].op == "load"
        ]
        values = [f"const {self._writer.real} v{index} = {self._node(index)};" for index in needed]
        size = self._program.columns
        return [
            "int64_t limit = 1;",
            "{",
            *indented([
                *pointers,
                "for (int64_t u = 0; u < count; ++u) {",
                *indented([
                    *values,
                    f"const {self._writer.real} place = std::floor(v{bound.place}) + {bound.more};",
                    f"const int64_t reach = place < 1 || !(place < {size}) ? {size} : static_cast<int64_t>(place);",
                    "limit = reach > limit ? reach : limit;",
                ]),
                "}",
            ]),
            "}",
        ]  # fmt: skip

    def _needed_rows(self, target: int) -> list[int]:
        """Return the nodes that a node of kind row or scalar needs."""
        found: set[int] = set()
        waiting = [target]
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += self._program.nodes[index].args
        return sorted(found)

    def _node(self, index: int) -> str:
        node = self._program.nodes[index]
        return self._writer.constant(node) if node.op == "const" else self._expression(node)

    def _scalars(self) -> list[str]:
        return [
            f"[[maybe_unused]] const {self._writer.real} v{index} = {self._node(index)};"
            for index, node in enumerate(self._program.nodes)
            if node.kind == "scalar"
        ]

    def _expression(self, node: Node) -> str:
        if node.op == "load":
            place = self._loads[node]
            element = f"{self._named[node]}[{place.element(self._column_strides(place.columns))}]"
            return self._writer.widened(place.tensor.dtype, element)
        if node.op == "index" and node.access is not None:
            place = self._places.number(node.access, len(self._stage.rows))
            number = " + ".join(filter(None, (place.start, place.element(self._column_strides(place.columns)))))
            return f"static_cast<{self._writer.real}>({number})"
        return super()._expression(node)

    def _column_strides(self, strides: tuple[int, ...]) -> str:
        """Return the offset of column `i`, which counts through all axes of the columns; empty if it is always 0."""
        sizes = self._stage.columns
        terms: list[str] = []
        reach = 1
        for position in reversed(range(len(sizes))):
            if strides[position]:
                digit = "i" if reach == 1 else f"i / {reach}"
                digit = digit if position == 0 else f"({digit}) % {sizes[position]}"
                terms.append(digit if strides[position] == 1 else f"({digit}) * {strides[position]}")
            reach *= sizes[position]
        return " + ".join(terms)

    def _full_outputs(self) -> list[tuple[int, TensorInfo]]:
        return [(0, self._target.tensor)] if self._stage.stores_columns else []

    def _element(self, tensor: TensorInfo) -> str:  # noqa: ARG002 - there is one
        return f"to[{self._target.element(self._column_strides(self._target.columns))}]"

    def _row_outputs(self) -> list[str]:
        if self._stage.stores_columns:
            return []
        value = self._writer.stored(self._target.tensor, f"v{self._stage.output}")
        return [f"to[{self._target.element('')}] = {value};"]
