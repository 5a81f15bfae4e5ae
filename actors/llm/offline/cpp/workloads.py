"""One C++ source for several workloads: the code of each in a namespace of its own, chosen by the shapes of a call.

What the rules write knows its shapes; for any others it returns an error instead of a result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from actors.llm.offline.cpp.codegen import Contract, includes, sections
from actors.llm.offline.graph import NoRuleError, TensorInfo
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages.ir import AnyProgram

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


def write_source(programs: Sequence[AnyProgram], plan: Plan, contract: Contract) -> str:
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
