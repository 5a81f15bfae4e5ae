"""Staged programs in C++: groups of stages that share their blocks."""

from __future__ import annotations

import math

from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier
from actors.llm.offline.cpp.rows import indented
from actors.llm.offline.cpp.runtime import BFLOAT16_FUNCTIONS, needed_functions
from actors.llm.offline.cpp.stages.contraction import ContractionWriter
from actors.llm.offline.cpp.stages.rows import Places, StageRows, local_name
from actors.llm.offline.cpp.stages.runtime import stage_functions
from actors.llm.offline.graph import Program, TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Bound, Contraction, RowStage, Staged, bound_of
from actors.llm.offline.stages.tracing import Group, grouped

_FUSED_ROWS = 16
_ROWS = 64


class GroupWriter:
    """One group under construction. Contractions are numbered from `first` on."""

    def __init__(self, group: Group, first: int, plan: Plan, writer: Writer, places: Places) -> None:
        self._group = group
        self._plan = plan
        self._writer = writer
        self._local = _local(group) if plan.fuse else {}
        places.enter(group.rows, self._local)
        written = frozenset(stage.target.name for stage in group.stages)
        self._rows: dict[int, StageRows] = {}
        self._contractions: dict[int, ContractionWriter] = {}
        for position, stage in enumerate(group.stages):
            if isinstance(stage, RowStage):
                self._rows[position] = StageRows(stage, plan, writer, places)
            else:
                number = first + len(self._contractions)
                self._contractions[position] = ContractionWriter(stage, number, plan, writer, places, written)
        self._bounded, self._bound = self._find_bound() if plan.skip else (-1, None)

    def kernels(self) -> list[list[str]]:
        """Return the definitions of the contractions' kernels."""
        return [kernel for writer in self._contractions.values() if (kernel := writer.kernel())]

    def lines(self) -> list[str]:
        """Return the statements."""
        threads = self._plan.threads
        group = self._group
        inner = group.rows[-1]
        block = min(inner, self._plan.rows or (_FUSED_ROWS if self._local else _ROWS))
        blocks = -(-inner // block)
        packs = [line for writer in self._contractions.values() for line in writer.packing(threads=threads)]
        buffers: list[str] = []
        for name, length in self._local.items():
            buffer = local_name(name)
            buffers.append(f"std::vector<real> stored_{buffer}({block * length});")
            buffers.append(f"real* {buffer} = stored_{buffer}.data();")
        schedule = "dynamic" if self._plan.dynamic else "static"
        loop = [
            *([f"#pragma omp for schedule({schedule})"] if threads else []),
            f"for (int64_t block = 0; block < {math.prod(group.rows[:-1]) * blocks}; ++block) {{",
            *indented(self._block(block, blocks)),
            "}",
        ]
        parallel = ["#pragma omp parallel"] if threads else []
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
        """Return a row stage whose masked columns need not be computed, since only sums over them use its result."""
        stages = self._group.stages
        for position, stage in enumerate(stages):
            bound = bound_of(stage) if isinstance(stage, RowStage) else None
            if bound is not None and stage.target.name in self._group.local:
                users = self._users(stage.target.name)
                if all(at in self._contractions and self._sums_over(at, stage.target.name) for at in users):
                    return position, bound
        return -1, None

    def _sums_over(self, position: int, name: str) -> bool:
        return self._contractions[position].sums_along(name)

    def _users(self, name: str) -> list[int]:
        """Return the stages that read a value."""
        return [at for at, stage in enumerate(self._group.stages) if any(access.name == name for access in stage.reads)]

    def _limits(self, position: int) -> tuple[str, str]:
        """Return to where a contraction's columns and its sum go, if a mask bounds them."""
        stage, masked = self._group.stages[position], self._group.stages[self._bounded]
        if self._bound is None or not isinstance(stage, Contraction):
            return "", ""
        count = len(self._group.rows)
        name = stage.target.name
        along = [access.strides[count:] == (1,) for access in masked.reads if access.name == name]
        is_fed = self._users(name) == [self._bounded] and all(along) and name in self._group.local
        columns = is_fed and len(stage.outer) == count + 1
        depth = any(access.name == masked.target.name for access in stage.reads)
        return "limit" if columns else "", "limit" if depth else ""


def _local(group: Group) -> dict[str, int]:
    """Return the values of a group that stay in buffers, and their elements per row."""
    found = {}
    for stage in group.stages:
        if stage.target.name in group.local:
            columns = stage.outer[len(group.rows) :] if isinstance(stage, Contraction) else stage.columns
            whole = isinstance(stage, Contraction) or stage.stores_columns
            found[stage.target.name] = math.prod(columns) if whole else 1
    return found


def staged_sections(program: Staged, plan: Plan, header: str, inputs: str, outputs: str) -> list[str]:
    """Return the sections of the source after the includes.

    Args:
        program: what to compute.
        plan: how.
        header: the function's declaration up to its closing parenthesis.
        inputs: name of the argument that holds the pointers to inputs and parameters.
        outputs: of the one for outputs.
    """
    writer = Writer(Program(nodes=(), outputs=(), rows=1, columns=1, tensors=program.tensors), plan)
    names = {(tensor.role == "output", tensor.name): identifier(tensor) for tensor in program.tensors}
    names |= {(False, tensor.name): _value_name(tensor) for tensor in program.tensors if tensor.role == "value"}
    places = Places(program, names)
    groups = grouped(program, fuse=plan.fuse)
    lines: list[str] = []
    kernels: list[str] = []
    for group in groups:
        written = GroupWriter(group, len(kernels), plan, writer, places)
        lines += written.lines()
        kernels += ["\n".join(kernel) for kernel in written.kernels()]
    body = [*_pointers(program, inputs, outputs), *_workspaces(program, plan, groups), *lines, "return 0;"]
    function = "\n".join([f"{header} {{", *indented(body), "}"])
    bfloat16 = any(tensor.dtype == "bfloat16" for tensor in program.tensors)
    shared = stage_functions(writer.real, bfloat16=bfloat16, vectors=bool(kernels))
    first = [BFLOAT16_FUNCTIONS] if bfloat16 else []
    elementary = needed_functions(function.replace("bfloat16", ""))
    return [*shared[:1], *first, *shared[1:], *([elementary] if elementary else []), *kernels, function]


def _pointers(program: Staged, inputs: str, outputs: str) -> list[str]:
    lines = []
    for position, tensor in enumerate(t for t in program.tensors if t.role in {"input", "parameter"}):
        kind = f"const {C_TYPES[tensor.dtype]}*"
        lines.append(f"[[maybe_unused]] {kind} {identifier(tensor)} = static_cast<{kind}>({inputs}[{position}]);")
    for position, tensor in enumerate(t for t in program.tensors if t.role == "output"):
        kind = f"{C_TYPES[tensor.dtype]}*"
        lines.append(f"{kind} {identifier(tensor)} = static_cast<{kind}>({outputs}[{position}]);")
    constants = {"minus_root_half": "-0.70710678118654752440"}
    return [*(f"[[maybe_unused]] constexpr real {name} = {value};" for name, value in constants.items()), *lines]


def _workspaces(program: Staged, plan: Plan, groups: tuple[Group, ...]) -> list[str]:
    """Return the statements that allocate the values that groups hand to each other."""
    local = {name for group in groups for name in group.local} if plan.fuse else set()
    static = "static " if plan.reuse else ""
    lines = []
    for tensor in program.tensors:
        if tensor.role == "value" and tensor.name not in local:
            name = _value_name(tensor)
            lines.append(f"{static}std::vector<real> stored_{name}({math.prod(tensor.shape)});")
            lines.append(f"real* {name} = stored_{name}.data();")
    return lines


def _value_name(tensor: TensorInfo) -> str:
    return f"value_{tensor.name.lstrip('%')}"
