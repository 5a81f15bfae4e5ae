"""Loops over rows in C++: operation by operation, or fused."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier
from actors.llm.offline.graph import COSTLY, REDUCTIONS, Node, Program, TensorInfo, levels
from actors.llm.offline.plan import Plan

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


_SIZES = {"full": "R * C", "row": "R", "vector": "C"}


def unfused_body(program: Program, plan: Plan, writer: Writer) -> list[str]:
    """Return the statements that compute all outputs."""
    lines: list[str] = []
    for index, node in enumerate(program.nodes):
        if node.op not in {"const", "load"} and node.kind != "scalar":
            lines += _Step(program, plan, writer, index).lines()
    tensors = [tensor for tensor in program.tensors if tensor.role == "output"]
    for output, tensor in zip(program.outputs, tensors, strict=True):
        kind = program.nodes[output].kind
        value = writer.stored(tensor, _operand(program, writer, output))
        target = f"{identifier(tensor)}[{'base + i' if kind == 'full' else 'r'}] = {value};"
        lines += _rows(plan, _columns(plan, [target]) if kind == "full" else [target])
    return lines


class _Step:
    """One operation."""

    def __init__(self, program: Program, plan: Plan, writer: Writer, index: int) -> None:
        self._program = program
        self._plan = plan
        self._writer = writer
        self._index = index
        self._node: Node = program.nodes[index]

    def lines(self) -> list[str]:
        """Return its temporary and its loops."""
        node = self._node
        temporary = f"std::vector<{self._writer.real}> m{self._index}({_SIZES[node.kind]});"
        if node.op in REDUCTIONS:
            return [temporary, *_rows(self._plan, self._reduction())]
        operands = [_operand(self._program, self._writer, arg) for arg in node.args]
        value = self._writer.operation(node, operands)
        if node.kind == "full":
            return [temporary, *_rows(self._plan, _columns(self._plan, [f"m{self._index}[base + i] = {value};"]))]
        if node.kind == "row":
            return [temporary, *_rows(self._plan, [f"m{self._index}[r] = {value};"])]
        return [temporary, *_columns(self._plan, [f"m{self._index}[i] = {value};"])]

    def _reduction(self) -> list[str]:
        op = self._node.op
        kind = self._writer.accumulator if op == "sum" else self._writer.real
        value = f"const {self._writer.real} value = {_operand(self._program, self._writer, self._node.args[0])};"
        clauses = f" reduction({'+' if op == 'sum' else op} : a)"
        loop = ColumnLoop(count="C", vectorise=self._plan.vectorise, clauses=clauses)
        return [
            f"{kind} a = {self._writer.start(op)};",
            *column_loop(loop, lambda _: [value, self._writer.accumulated(op, "a", "value")]),
            f"m{self._index}[r] = {self._writer.combined(op, ['a'])};",
        ]


def _operand(program: Program, writer: Writer, index: int) -> str:
    """Return an operand where `r`, `base` and `i` say the place."""
    node = program.nodes[index]
    place = {"full": "base + i", "row": "r", "vector": "i", "scalar": ""}[node.kind]
    if not place:
        return f"v{index}"
    return writer.loaded(node, place) if node.op == "load" else f"m{index}[{place}]"


def _rows(plan: Plan, body: list[str]) -> list[str]:
    schedule = f" schedule(static, {plan.rows})" if plan.rows else " schedule(static)"
    needs_base = any("base" in line for line in body)
    return [
        *([f"#pragma omp parallel for{schedule}"] if plan.threads else []),
        "for (int64_t r = 0; r < R; ++r) {",
        *indented([*(["const int64_t base = r * C;"] if needs_base else []), *body]),
        "}",
    ]


def _columns(plan: Plan, body: list[str]) -> list[str]:
    return column_loop(ColumnLoop(count="C", vectorise=plan.vectorise), lambda _: body)


_BLOCK_BYTES = 64 * 1024
"""Largest buffer for streamed outputs: it must stay in the caches next to the core."""


def fused_body(program: Program, plan: Plan, writer: Writer) -> list[str]:
    """Return the statements that compute all outputs."""
    return RowLoops(program, plan, writer).body()


class RowLoops:
    """One program under construction. What reads and writes elements may be overridden."""

    def __init__(self, program: Program, plan: Plan, writer: Writer) -> None:
        self._program = program
        self._plan = plan
        self._writer = writer
        self._levels = levels(program)
        self._last = max(self._levels[output] for output in program.outputs)
        self._needed = [needed_columns(program, self._targets(number)) for number in range(self._last + 1)]
        self._kept = self._choose_kept() if plan.keep else frozenset()
        self._streams = plan.stream and bool(self._full_outputs())

    def body(self) -> list[str]:
        """Return the loop over rows with what stands around it."""
        plan = self._plan
        schedule = f"schedule(static, {plan.rows})" if plan.rows else "schedule(static)"
        loop = [
            *([f"#pragma omp for {schedule}"] if plan.threads else []),
            "for (int64_t r = 0; r < R; ++r) {",
            *indented(self._row()),
            "}",
            *(["stream_end();"] if self._streams else []),
        ]
        return [*(["#pragma omp parallel"] if plan.threads else []), "{", *indented([*self._buffers(), *loop]), "}"]

    def _targets(self, number: int) -> list[int]:
        """Return what the loop of this number must compute: operands of reductions, or the outputs."""
        program = self._program
        if number == self._last:
            return [program.outputs[position] for position, _ in self._full_outputs()]
        return [program.nodes[index].args[0] for index in self._reductions(number)]

    def _reductions(self, number: int) -> list[int]:
        return [index for index in self._program.reductions if self._levels[index] == number + 1]

    def _choose_kept(self) -> frozenset[int]:
        """Return the costly values of one loop that a later one meets again."""
        kept: set[int] = set()
        for number, later in enumerate(self._needed[1:], start=1):
            earlier = {index for needed in self._needed[:number] for index in needed}
            again = frozenset(index for index in later if index in earlier and self._is_costly(index))
            reached = needed_columns(self._program, self._targets(number), again)
            kept |= again & set(reached)
        return frozenset(kept)

    def _is_costly(self, index: int) -> bool:
        node = self._program.nodes[index]
        return node.kind == "full" and node.op in COSTLY

    def _buffers(self) -> list[str]:
        lines = [f"std::vector<{self._writer.real}> kept_{index}(C);" for index in sorted(self._kept)]
        for position, tensor in self._full_outputs() if self._block else []:
            lines.append(f"alignas(64) {C_TYPES[tensor.dtype]} block_{position}[{self._block}];")
        return lines

    @property
    def _block(self) -> int:
        """Columns per block of the output loop; 0 if it is not blocked."""
        if not self._streams:
            return min(self._plan.columns, self._program.columns)
        widest = self._plan.columns or self._program.columns
        return min(widest, self._program.columns, _BLOCK_BYTES // 8)

    def _full_outputs(self) -> list[tuple[int, TensorInfo]]:
        tensors = [tensor for tensor in self._program.tensors if tensor.role == "output"]
        nodes = [self._program.nodes[output] for output in self._program.outputs]
        return [(at, tensor) for at, tensor in enumerate(tensors) if nodes[at].kind == "full"]

    def _row(self) -> list[str]:
        return ["const int64_t base = r * C;", *self._prefetch(), *self.row()]

    def row(self) -> list[str]:
        """Return the statements for one row."""
        lines = self._row_values(0)
        for number in range(self._last):
            lines += self._reduction_loop(number)
            lines += self._row_values(number + 1)
        return [*lines, *self._output_loop(), *self._row_outputs()]

    def _prefetch(self) -> list[str]:
        ahead = self._plan.prefetch
        if not ahead:
            return []
        full = {node.name for node in self._program.nodes if node.op == "load" and node.kind == "full"}
        tensors = [tensor for tensor in self._program.tensors if tensor.name in full and tensor.role != "output"]
        fetches = [f"__builtin_prefetch({identifier(tensor)} + base + {ahead} * C + c);" for tensor in tensors]
        return [
            f"if (r + {ahead} < R) {{",
            *indented(["for (int64_t c = 0; c < C; c += 16) {", *indented(fetches), "}"]),
            "}",
        ]

    def _row_values(self, level: int) -> list[str]:
        """Return values per row that are known from this level on, reductions aside."""
        lines = []
        for index, node in enumerate(self._program.nodes):
            if node.kind == "row" and self._levels[index] == level and node.op not in REDUCTIONS:
                lines.append(f"const {self._writer.real} v{index} = {self._expression(node)};")
        return lines

    def _expression(self, node: Node) -> str:
        if node.op == "load":
            return self._writer.loaded(node, {"full": "base + i", "vector": "i", "row": "r"}[node.kind])
        return self._writer.operation(node, [f"v{arg}" for arg in node.args])

    def _columns(self, number: int) -> list[str]:
        """Return the statements that compute one column of the loop of this number."""
        earlier = {index for needed in self._needed[:number] for index in needed}
        known = frozenset(index for index in self._kept if index in earlier)
        lines = []
        for index in needed_columns(self._program, self._targets(number), known):
            node = self._program.nodes[index]
            value = f"kept_{index}[i]" if index in known else self._expression(node)
            lines.append(f"const {self._writer.real} v{index} = {value};")
            if index in self._kept and index not in known:
                lines.append(f"kept_{index}[i] = v{index};")
        return lines

    def _reduction_loop(self, number: int) -> list[str]:
        parts = self._plan.accumulators
        reductions = self._reductions(number)
        lines, clauses = [], ""
        for index in reductions:
            op = self._program.nodes[index].op
            names = [f"a{index}_{part}" for part in range(parts)]
            kind = self._writer.accumulator if op == "sum" else self._writer.real
            lines += [f"{kind} {name} = {self._writer.start(op)};" for name in names]
            clauses += f" reduction({'+' if op == 'sum' else op} : {', '.join(names)})"

        def body(part: int) -> list[str]:
            taken = [
                self._writer.accumulated(
                    self._program.nodes[index].op, f"a{index}_{part}", f"v{self._program.nodes[index].args[0]}"
                )
                for index in reductions
            ]
            return [*self._columns(number), *taken]

        loop = ColumnLoop(count="C", parts=parts, vectorise=self._plan.vectorise, clauses=clauses)
        lines += column_loop(loop, body)
        for index in reductions:
            names = [f"a{index}_{part}" for part in range(parts)]
            combined = self._writer.combined(self._program.nodes[index].op, names)
            lines.append(f"const {self._writer.real} v{index} = {combined};")
        return lines

    def _output_loop(self) -> list[str]:
        outputs = self._full_outputs()
        if not outputs:
            return []
        block = self._block

        def body(part: int) -> list[str]:  # noqa: ARG001 - outputs are the same in every part
            stores = []
            for position, tensor in outputs:
                value = self._writer.stored(tensor, f"v{self._program.outputs[position]}")
                target = f"block_{position}[i - start]" if self._streams else self._element(tensor)
                stores.append(f"{target} = {value};")
            return [*self._columns(self._last), *stores]

        shape = ColumnLoop(count="C", parts=self._plan.unroll, vectorise=self._plan.vectorise)
        if not block:
            return column_loop(shape, body)
        inner = ColumnLoop(count="count", start="start", parts=self._plan.unroll, vectorise=self._plan.vectorise)
        streams = [
            f"stream_out({identifier(tensor)} + base + start, block_{at}, count * sizeof block_{at}[0]);"
            for at, tensor in outputs
        ]
        return [
            f"for (int64_t start = 0; start < C; start += {block}) {{",
            *indented([
                f"const int64_t count = C - start < {block} ? C - start : {block};",
                *column_loop(inner, body),
                *(streams if self._streams else []),
            ]),
            "}",
        ]  # fmt: skip

    def _element(self, tensor: TensorInfo) -> str:
        """Return an output's element in column `i`."""
        return f"{identifier(tensor)}[base + i]"

    def _row_outputs(self) -> list[str]:
        lines = []
        tensors = [tensor for tensor in self._program.tensors if tensor.role == "output"]
        for output, tensor in zip(self._program.outputs, tensors, strict=True):
            if self._program.nodes[output].kind == "row":
                lines.append(f"{identifier(tensor)}[r] = {self._writer.stored(tensor, f'v{output}')};")
        return lines
