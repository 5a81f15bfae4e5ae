"""Writes a program the plain way: a loop nest per operation, each result in a temporary, as an eager framework does."""

from __future__ import annotations

from actors.llm.offline.cpp.expressions import Writer, identifier
from actors.llm.offline.cpp.loops import ColumnLoop, column_loop, indented
from actors.llm.offline.graph import REDUCTIONS, Node, Program
from actors.llm.offline.plan import Plan

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
