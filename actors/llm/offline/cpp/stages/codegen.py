"""From a staged program and a plan to a complete C++ source."""

from __future__ import annotations

import math

from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier
from actors.llm.offline.cpp.loops import indented
from actors.llm.offline.cpp.runtime import BFLOAT16_FUNCTIONS, needed_functions
from actors.llm.offline.cpp.stages.blocks import GroupWriter
from actors.llm.offline.cpp.stages.places import Places
from actors.llm.offline.cpp.stages.runtime import stage_functions
from actors.llm.offline.graph import Program, TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.groups import Group, grouped
from actors.llm.offline.stages.ir import Staged


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
