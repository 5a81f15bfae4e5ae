"""From programs and a plan to one C++ source, for one workload or several.

What the rules write knows its shapes; for any others it returns an error instead of a result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from actors.llm.offline.cpp.expressions import C_TYPES, Writer, identifier
from actors.llm.offline.cpp.rows import fused_body, indented, unfused_body
from actors.llm.offline.cpp.runtime import needed_functions
from actors.llm.offline.cpp.stages.codegen import staged_sections
from actors.llm.offline.graph import NoRuleError, Program, TensorInfo
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages.ir import AnyProgram, Staged
from messages.base import Language


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """How the candidate is called."""

    language: ClassVar[Language] = "cpp"
    header: str
    """The function's declaration up to its closing parenthesis."""
    inputs: str
    """Name of the argument that holds the pointers to inputs and parameters."""
    outputs: str
    """Name of the argument that holds the pointers to outputs."""


def write_source(program: AnyProgram, plan: Plan, contract: Contract) -> str:
    """Return the source. Everything in it follows from the graph, the shapes and dtypes, and the plan."""
    parts = [plan_comment(plan), includes(plan), *sections(program, plan, contract)]
    return "\n\n".join(section for section in parts if section) + "\n"


def sections(program: AnyProgram, plan: Plan, contract: Contract) -> list[str]:
    """Return the parts of the source after the includes; some may be empty."""
    if isinstance(program, Staged):
        return staged_sections(program, plan, contract.header, contract.inputs, contract.outputs)
    writer = Writer(program, plan)
    body = fused_body(program, plan, writer) if plan.fuse else unfused_body(program, plan, writer)
    statements = [*_constants(writer), *_pointers(program, contract), *_scalars(program, writer), *body, "return 0;"]
    function = "\n".join([f"{contract.header} {{", *indented(statements), "}"])
    sizes = f"constexpr int64_t R = {program.rows};\nconstexpr int64_t C = {program.columns};"
    return [sizes, needed_functions(function), function]


_NO_TRAPS = """\
#if defined(__GNUC__) && !defined(__clang__)
// Nobody asks for floating-point exceptions: so conditions may become blends, and loops with them vectors.
#pragma GCC optimize("no-trapping-math")
#endif"""
"""Without it GCC 12 leaves loops with conditions scalar where there are no mask registers (AVX-512)."""


def includes(plan: Plan) -> str:
    """Return the includes that a plan needs, and before them how what follows is compiled."""
    headers = ("algorithm", "cmath", "cstddef", "cstdint", "cstring", "type_traits", "vector")
    lines = [_NO_TRAPS] if plan.vectorise else []
    lines += [f"#include <{header}>" for header in headers]
    if plan.stream:
        lines += ["#if defined(__AVX__)", "#include <immintrin.h>", "#endif"]
    return "\n".join(lines)


def _constants(writer: Writer) -> list[str]:
    values = {"zero": "0.0", "half": "0.5", "one": "1.0", "minus_root_half": "-0.70710678118654752440"}
    return [f"[[maybe_unused]] constexpr {writer.real} {name} = {value};" for name, value in values.items()]


def _pointers(program: Program, contract: Contract) -> list[str]:
    inputs = [tensor for tensor in program.tensors if tensor.role != "output"]
    outputs = [tensor for tensor in program.tensors if tensor.role == "output"]
    used = {node.name for node in program.nodes if node.op == "load"}
    lines = []
    for position, tensor in enumerate(inputs):
        if tensor.name in used:
            kind = f"const {C_TYPES[tensor.dtype]}*"
            source = f"static_cast<{kind}>({contract.inputs}[{position}])"
            lines.append(f"{kind} __restrict {identifier(tensor)} = {source};")
    for position, tensor in enumerate(outputs):
        kind = f"{C_TYPES[tensor.dtype]}*"
        source = f"static_cast<{kind}>({contract.outputs}[{position}])"
        lines.append(f"{kind} __restrict {identifier(tensor)} = {source};")
    return lines


def _scalars(program: Program, writer: Writer) -> list[str]:
    lines = []
    for index, node in enumerate(program.nodes):
        if node.kind == "scalar":
            match node.op:
                case "const":
                    value = writer.constant(node)
                case "load":
                    value = writer.loaded(node, "0")
                case _:
                    value = writer.operation(node, [f"v{arg}" for arg in node.args])
            lines.append(f"[[maybe_unused]] const {writer.real} v{index} = {value};")
    return lines


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


def write_workloads(programs: Sequence[AnyProgram], plan: Plan, contract: Contract) -> str:
    """Return the source.

    Raises:
        NoRuleError: the contract does not say where the shapes are.
    """
    found = _SHAPES.search(contract.header)
    if found is None:
        raise NoRuleError("several workloads without the shapes of a call")
    inner = msgspec.structs.replace(contract, header="static int run" + contract.header[contract.header.index("(") :])
    bodies = ["\n\n".join(section for section in sections(program, plan, inner) if section) for program in programs]
    spaces = [f"namespace workload_{at} {{\n\n{body}\n\n}}" for at, body in enumerate(bodies)]
    arguments = f"{contract.inputs}, {contract.outputs}, {found[1]}"
    choices = [
        f"    if (are_shapes({found[1]}, {_listed(program.tensors)})) return workload_{at}::run({arguments});"
        for at, program in enumerate(programs)
    ]
    entry = "\n".join([f"{contract.header} {{", *choices, "    return 1;  // shapes that it was not written for", "}"])
    heads = f"{includes(plan)}\n#include <initializer_list>"
    return "\n\n".join([plan_comment(plan), heads, *spaces, _SAME, entry]) + "\n"


def _listed(tensors: Sequence[TensorInfo]) -> str:
    """Return the shapes as C++ lists: inputs and parameters first, then outputs, without values in between."""
    given = [tensor for tensor in tensors if tensor.role in {"input", "parameter"}]
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    shapes = (f"{{{', '.join(map(str, tensor.shape))}}}" for tensor in (*given, *outputs))
    return f"{{{', '.join(shapes)}}}"
