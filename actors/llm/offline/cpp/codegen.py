"""From programs and a plan to one C++ source, for one workload or several.

The source is specialised to its shapes. For other shapes it returns an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from actors.llm.offline.cpp.contraction import ContractionWriter
from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier, indented
from actors.llm.offline.cpp.functions import needed_functions
from actors.llm.offline.cpp.rows import Places, RowWriter, local_name
from actors.llm.offline.lowering import Bound, Group, bound_of, grouped, row_length
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages import NoRuleError, Program
from messages.base import Language

_NO_TRAPS = """\
#if defined(__GNUC__) && !defined(__clang__)
// Nobody asks for floating-point exceptions: so conditions may become blends, and loops with them vectors.
#pragma GCC optimize("no-trapping-math")
#endif"""
"""Without it GCC 12 does not vectorise loops with conditions where there are no mask registers (AVX-512)."""
_SHAPES = re.compile(r"int64_t\s*\*\s*(?:const\s*)?\*\s*(?:const\s*)?(\w+)\s*\)$")
_SAME = """\
static bool are_shapes(const int64_t* const* shapes, std::initializer_list<std::initializer_list<int64_t>> wanted) {
    for (const auto& shape : wanted) {
        const int64_t* dimensions = *shapes++;
        for (int64_t extent : shape) {
            if (*dimensions++ != extent) return false;
        }
    }
    return true;
}"""


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Call form of the candidate."""

    language: ClassVar[Language] = "cpp"
    header: str
    """The function's declaration up to its closing parenthesis."""
    inputs: str
    """Name of the argument that holds the pointers to inputs and parameters."""
    outputs: str
    """Name of the argument that holds the pointers to outputs."""


def write_source(programs: Sequence[Program], plan: Plan, contract: Contract) -> str:
    """Return the source. For several workloads it contains code for each, chosen by shapes.

    Raises:
        NoRuleError: there are several, and the contract does not pass shapes.
    """
    headers = ["algorithm", "cmath", "cstddef", "cstdint", "cstring", "type_traits", "vector"]
    headers += ["initializer_list"] if len(programs) > 1 else []
    lines = [_NO_TRAPS] if plan.vectorise else []
    lines += [f"#include <{header}>" for header in headers]
    if plan.stream:
        lines += ["#if defined(__AVX__)", "#include <immintrin.h>", "#endif"]
    head = [plan_comment(plan), "\n".join(lines)]
    if len(programs) == 1:
        return "\n\n".join([*head, *_sections(programs[0], plan, contract)]) + "\n"
    found = _SHAPES.search(contract.header)
    if found is None:
        raise NoRuleError("several workloads without the shapes of a call")
    inner = msgspec.structs.replace(contract, header="static int run" + contract.header[contract.header.index("(") :])
    bodies = ["\n\n".join(_sections(program, plan, inner)) for program in programs]
    spaces = [f"namespace workload_{at} {{\n\n{body}\n\n}}" for at, body in enumerate(bodies)]
    arguments = f"{contract.inputs}, {contract.outputs}, {found[1]}"
    choices = [
        f"    if (are_shapes({found[1]}, {_listed(program)})) return workload_{at}::run({arguments});"
        for at, program in enumerate(programs)
    ]
    entry = "\n".join([f"{contract.header} {{", *choices, "    return 1;  // shapes that it was not written for", "}"])
    return "\n\n".join([*head, *spaces, _SAME, entry]) + "\n"


def _listed(program: Program) -> str:
    """Return the shapes of a call as C++ lists."""
    shapes = (f"{{{', '.join(map(str, tensor.shape))}}}" for tensor in program.arguments)
    return f"{{{', '.join(shapes)}}}"


def _sections(program: Program, plan: Plan, contract: Contract) -> list[str]:
    """Return the parts of the source after the includes."""
    writer = Writer(program, plan)
    groups = grouped(program, fuse=plan.fuse)
    lines: list[str] = []
    kernels: list[str] = []
    for group in groups:
        written = _GroupWriter(group, len(kernels), program, plan, writer)
        lines += written.lines()
        kernels += written.kernels()
    body = [*_pointers(program, contract), *_workspaces(program, plan, groups), *lines, "return 0;"]
    function = "\n".join([f"{contract.header} {{", *indented(body), "}"])
    bfloat16 = any(tensor.dtype == "bfloat16" for tensor in program.tensors)
    return [*needed_functions(function, writer.real, bfloat16=bfloat16, vectors=bool(kernels)), *kernels, function]


def _pointers(program: Program, contract: Contract) -> list[str]:
    """Return the statements that name tensors and numbers."""
    lines = []
    for const, names, is_output in (("const ", contract.inputs, False), ("", contract.outputs, True)):
        found = [tensor for tensor in program.arguments if (tensor.role == "output") is is_output]
        for position, tensor in enumerate(found):
            kind = f"{const}{C_TYPES[tensor.dtype]}*"
            lines.append(f"[[maybe_unused]] {kind} {identifier(tensor)} = static_cast<{kind}>({names}[{position}]);")
    return lines


def _workspaces(program: Program, plan: Plan, groups: tuple[Group, ...]) -> list[str]:
    """Return the statements that allocate the values passed between groups."""
    local = {name for group in groups for name in group.local} if plan.fuse else set()
    lines = []
    for tensor in program.tensors:
        if tensor.role == "value" and tensor.name not in local:
            name = identifier(tensor)
            static = "static " if plan.reuse else ""
            lines.append(f"{static}std::vector<real> stored_{name}({math.prod(tensor.shape)});")
            lines.append(f"real* {name} = stored_{name}.data();")
    return lines


_FUSED_ROWS = 16
_ROWS = 64


class _GroupWriter:
    """One group that is being written. Contractions are numbered from `first` on."""

    def __init__(self, group: Group, first: int, program: Program, plan: Plan, writer: Writer) -> None:
        self._group, self._plan = group, plan
        count = len(group.rows)
        local = [stage for stage in group.stages if stage.target.name in group.local and plan.fuse]
        self._local = {stage.target.name: row_length(stage, count) for stage in local}
        places = Places(program, group.rows, self._local)
        written = frozenset(stage.target.name for stage in group.stages)
        self._rows: dict[int, RowWriter] = {}
        self._contractions: dict[int, ContractionWriter] = {}
        for position, stage in enumerate(group.stages):
            if stage.is_contraction:
                number = first + len(self._contractions)
                self._contractions[position] = ContractionWriter(stage, number, plan, writer, places, written)
            else:
                self._rows[position] = RowWriter(stage, plan, writer, places)
        self._bounded, self._bound = self._find_bound() if plan.skip else (-1, None)

    def kernels(self) -> list[str]:
        """Return the definitions of the contractions' kernels."""
        return [kernel for writer in self._contractions.values() if (kernel := writer.kernel())]

    def lines(self) -> list[str]:
        """Return the statements."""
        plan, rows = self._plan, self._group.rows
        block = min(rows[-1], plan.rows or (_FUSED_ROWS if self._local else _ROWS))
        blocks = -(-rows[-1] // block)
        packs = [line for writer in self._contractions.values() for line in writer.packing()]
        buffers: list[str] = []
        for name, length in self._local.items():
            buffer = local_name(name)
            buffers.append(f"std::vector<real> stored_{buffer}({block * length});")
            buffers.append(f"real* {buffer} = stored_{buffer}.data();")
        loop = [
            *([f"#pragma omp for schedule({'dynamic' if plan.dynamic else 'static'})"] if plan.threads else []),
            f"for (int64_t block = 0; block < {math.prod(rows[:-1]) * blocks}; ++block) {{",
            *indented(self._block(block, blocks)),
            "}",
        ]
        parallel = ["#pragma omp parallel"] if plan.threads else []
        return ["{", *indented([*packs, *parallel, "{", *indented([*buffers, *loop]), "}"]), "}"]

    def _block(self, block: int, blocks: int) -> list[str]:
        """Return the statements for one block of rows."""
        rows = self._group.rows
        lines = [
            f"[[maybe_unused]] const int64_t start = block % {blocks} * {block};",
            f"const int64_t count = {rows[-1]} - start < {block} ? {rows[-1]} - start : {block};",
            f"[[maybe_unused]] int64_t rest = block / {blocks};",
        ]
        for axis in reversed(range(len(rows) - 1)):
            lines += [f"[[maybe_unused]] const int64_t o{axis} = rest % {rows[axis]};", f"rest /= {rows[axis]};"]
        if self._bound is not None:
            lines += self._rows[self._bounded].limit(self._bound)
        for position in range(len(self._group.stages)):
            if position in self._rows:
                body = self._rows[position].lines(bounded=position == self._bounded)
            else:
                columns, depth = self._limits(position)
                body = self._contractions[position].lines(columns=columns, depth=depth)
            lines += ["{", *indented(body), "}"]
        return lines

    def _find_bound(self) -> tuple[int, Bound | None]:
        """Return a row stage with masked columns that can be skipped, since only sums over them use them."""
        for position, stage in enumerate(self._group.stages):
            bound = None if stage.is_contraction else bound_of(stage)
            name = stage.target.name
            if bound is not None and name in self._group.local:
                users = self._users(name)
                if all(at in self._contractions and self._contractions[at].sums_along(name) for at in users):
                    return position, bound
        return -1, None

    def _users(self, name: str) -> list[int]:
        """Return the stages that read a value."""
        return [at for at, stage in enumerate(self._group.stages) if any(access.name == name for access in stage.reads)]

    def _limits(self, position: int) -> tuple[str, str]:
        """Return the ends of a contraction's columns and of its sum, if a mask bounds them."""
        stage, masked = self._group.stages[position], self._group.stages[self._bounded]
        if self._bound is None:
            return "", ""
        count, name = len(self._group.rows), stage.target.name
        along = all(access.strides[count:] == (1,) for access in masked.reads if access.name == name)
        is_fed = along and self._users(name) == [self._bounded] and name in self._group.local
        depth = any(access.name == masked.target.name for access in stage.reads)
        return "limit" if is_fed and len(stage.rows) == count + 1 else "", "limit" if depth else ""
