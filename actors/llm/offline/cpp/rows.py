"""Row stages in C++, and the places of tensors in memory.

Variables of a block: `o0`, `o1`, ... number the outer row axes, `start` is the block's first row along the last one and
`count` its number of rows; `u` is a row of the block, `i` a column of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier, indented
from actors.llm.offline.lowering import Bound
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages import COSTLY, REDUCTIONS, Access, Node, Program, Stage, TensorInfo

_BLOCK_COLUMNS = 8192
"""Longest buffer for streamed outputs: it must stay in the core's own caches."""


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
    """Strides along the axes after the rows."""
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
    """Places of all tensors for a group of stages."""

    def __init__(self, program: Program, rows: tuple[int, ...], local: dict[str, int]) -> None:
        """Begin. `rows`: sizes of the group's axes; `local`: elements per row of its buffered values."""
        self._sources, self._targets = program.sources, program.targets
        self.rows = rows
        self._local = local

    def place(self, access: Access, *, written: bool = False) -> Place:
        """Return the place of a stage's access."""
        tensor = (self._targets if written else self._sources).get(access.name, _NUMBER)
        count = len(self.rows)
        if access.name in self._local:
            return Place(tensor=tensor, pointer=local_name(access.name), start="", row=self._local[access.name],
                         columns=access.strides[count:], written=written)  # fmt: skip
        *outer, last = access.strides[:count]
        terms = [str(access.offset)] if access.offset else []
        terms += [times(f"o{axis}", stride) for axis, stride in enumerate(outer) if stride]
        terms += [times("start", last)] if last else []
        return Place(tensor=tensor, pointer=identifier(tensor), start=" + ".join(terms), row=last,
                     columns=access.strides[count:], written=written)  # fmt: skip


_NUMBER = TensorInfo(name="", role="value", shape=(), dtype="float32")
"""Access that stands for a position itself, not for an element."""


def local_name(name: str) -> str:
    """Return the C++ name of the buffer for a value."""
    return f"block_of_{name.lstrip('%')}"


def times(name: str, stride: int) -> str:
    """Return a product."""
    return name if stride == 1 else f"{name} * {stride}"


class RowWriter:
    """A row stage as loops over the columns of each row of a block: one per reduction that others need, and a last."""

    def __init__(self, stage: Stage, plan: Plan, writer: Writer, places: Places) -> None:
        self._stage, self._plan, self._writer = stage, plan, writer
        self._target = places.place(stage.target, written=True)
        reads = {node: places.place(node.access) for node in stage.nodes if node.access is not None}
        self._reads = {node: (f"p{number}", place) for number, (node, place) in enumerate(reads.items())}
        self._levels = stage.levels()
        self._last = self._levels[stage.output]
        self._needed = [self._columns_of(number) for number in range(self._last + 1)]
        self._kept = self._choose_kept() if plan.keep else frozenset()
        self._column = self._offset(self._target.columns)
        streams = plan.stream and self._target.tensor.role == "output" and self._column == "i"
        self._block = min(math.prod(stage.columns), _BLOCK_COLUMNS) if streams and stage.stores_columns else 0

    def lines(self, *, bounded: bool) -> list[str]:
        """Return the statements for all rows of a block; `bounded`: up to column `limit`, a C++ variable."""
        count = "limit" if bounded else str(math.prod(self._stage.columns))
        block = f"alignas(64) {self._target.kind} streamed[{self._block}];"
        return [
            *self._pointers(range(len(self._stage.nodes))),
            self._target.declared("to"),
            f"[[maybe_unused]] const int64_t C = {count};",
            *self._values("scalar", 0),
            *(f"std::vector<real> kept_{index}(C);" for index in sorted(self._kept)),
            *([block] if self._block else []),
            "for (int64_t u = 0; u < count; ++u) {",
            *indented(self._row()),
            "}",
            *(["stream_end();"] if self._block else []),
        ]

    def limit(self, bound: Bound) -> list[str]:
        """Return the statements that find the columns to compute for a block: up to its longest row."""
        needed = self._stage.needed([bound.place], ("row", "scalar"))
        size = math.prod(self._stage.columns)
        inner = [
            *(f"const real v{index} = {self._expression(index)};" for index in needed),
            f"const real place = std::floor(v{bound.place}) + {bound.more};",
            f"const int64_t reach = place < 1 || !(place < {size}) ? {size} : static_cast<int64_t>(place);",
            "limit = reach > limit ? reach : limit;",
        ]
        loop = [*self._pointers(needed), "for (int64_t u = 0; u < count; ++u) {", *indented(inner), "}"]
        return ["int64_t limit = 1;", "{", *indented(loop), "}"]

    def _pointers(self, needed: Iterable[int]) -> list[str]:
        found = (self._stage.nodes[index] for index in needed)
        return [self._reads[node][1].declared(self._reads[node][0]) for node in found if node.op == "load"]

    def _columns_of(self, number: int, known: frozenset[int] = frozenset()) -> list[int]:
        """Return the nodes per column that the loop of this number needs, without those below `known` ones."""
        targets = [self._stage.output] if self._stage.stores_columns else []
        if number < self._last:
            targets = [self._stage.nodes[at].args[0] for at in self._reductions(number)]
        return self._stage.needed(targets, ("full", "vector"), known)

    def _reductions(self, number: int) -> list[int]:
        return [index for index in self._stage.reductions if self._levels[index] == number + 1]

    def _choose_kept(self) -> frozenset[int]:
        """Return the costly values of one loop that a later one needs again."""
        kept: set[int] = set()
        for number, later in enumerate(self._needed[1:], start=1):
            earlier = {index for needed in self._needed[:number] for index in needed}
            nodes = ((index, self._stage.nodes[index]) for index in later if index in earlier)
            again = frozenset(index for index, node in nodes if node.kind == "full" and node.op in COSTLY)
            kept |= again & set(self._columns_of(number, again))
        return frozenset(kept)

    def _row(self) -> list[str]:
        lines = self._values("row", 0)
        for number in range(self._last):
            lines += [*self._reduction_loop(number), *self._values("row", number + 1)]
        if self._stage.stores_columns:
            return [*lines, *self._output_loop()]
        value = self._writer.stored(self._target.tensor.dtype, f"v{self._stage.output}")
        return [*lines, f"to[{self._target.element('')}] = {value};"]

    def _values(self, kind: str, level: int) -> list[str]:
        """Return the values of a kind that are known from a level on, without reductions."""
        return [
            f"[[maybe_unused]] const real v{index} = {self._expression(index)};"
            for index, node in enumerate(self._stage.nodes)
            if node.kind == kind and self._levels[index] == level and node.op not in REDUCTIONS
        ]

    def _expression(self, index: int) -> str:
        node = self._stage.nodes[index]
        if node.op == "const":
            return self._writer.constant(node.value)
        if node.access is None:
            return self._writer.operation(node, [f"v{arg}" for arg in node.args])
        return self._element(node)

    def _element(self, node: Node) -> str:
        name, place = self._reads[node]
        element = place.element(self._offset(place.columns))
        if node.op == "index":
            return f"static_cast<real>({' + '.join(filter(None, (place.start, element)))})"
        return self._writer.widened(place.tensor.dtype, f"{name}[{element}]")

    def _offset(self, strides: tuple[int, ...]) -> str:
        """Return the offset of column `i`, which counts through all axes of the columns; empty if it is always 0."""
        sizes, terms, reach = self._stage.columns, list[str](), 1
        for at in reversed(range(len(sizes))):
            if strides[at]:
                digit = "i" if reach == 1 else f"i / {reach}"
                digit = digit if at == 0 else f"({digit}) % {sizes[at]}"
                terms.append(digit if strides[at] == 1 else f"({digit}) * {strides[at]}")
            reach *= sizes[at]
        return " + ".join(terms)

    def _columns(self, number: int) -> list[str]:
        """Return the statements that compute one column of the loop of this number."""
        known = self._kept.intersection(*[{index for needed in self._needed[:number] for index in needed}])
        lines = []
        for index in self._columns_of(number, known):
            value = f"kept_{index}[i]" if index in known else self._expression(index)
            lines.append(f"const real v{index} = {value};")
            if index in self._kept and index not in known:
                lines.append(f"kept_{index}[i] = v{index};")
        return lines

    def _loop(self, body: list[str], clauses: str = "", *, count: str = "C", first: str = "") -> list[str]:
        simd = [f"#pragma omp simd{clauses}"] if self._plan.vectorise else []
        head = f"for (int64_t c = 0; c < {count}; ++c) {{"
        return [*simd, head, *indented([f"const int64_t i = {first}c;", *body]), "}"]

    def _reduction_loop(self, number: int) -> list[str]:
        nodes, found = self._stage.nodes, self._reductions(number)
        clauses = "".join(
            f" reduction({'+' if nodes[at].op == 'sum' else nodes[at].op} : a{at})" for at in found
        )  # fmt: skip
        taken = [self._writer.accumulated(nodes[at].op, f"a{at}", f"v{nodes[at].args[0]}") for at in found]
        return [
            *(self._writer.start(nodes[at].op, f"a{at}") for at in found),
            *self._loop([*self._columns(number), *taken], clauses),
            *(f"const real v{at} = static_cast<real>(a{at});" for at in found),
        ]

    def _output_loop(self) -> list[str]:
        value = self._writer.stored(self._target.tensor.dtype, f"v{self._stage.output}")
        columns = self._columns(self._last)
        if not self._block:
            return self._loop([*columns, f"to[{self._target.element(self._column)}] = {value};"])
        target = self._target.element("first")
        return [
            f"for (int64_t first = 0; first < C; first += {self._block}) {{",
            *indented([
                f"const int64_t part = C - first < {self._block} ? C - first : {self._block};",
                *self._loop([*columns, f"streamed[c] = {value};"], count="part", first="first + "),
                f"stream_out(to + {target}, streamed, part * sizeof streamed[0]);",
            ]),
            "}",
        ]  # fmt: skip
