"""One Triton source for several workloads: the kernels of each, launched by the shapes of a call.

What the rules write knows its shapes; for any others it raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import TensorInfo
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages.ir import AnyProgram
from actors.llm.offline.triton.codegen import Contract, allocations_of, kernels_of
from actors.llm.offline.triton.kernels import Kernel, indented
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.runtime import needed_functions


def write_source(programs: Sequence[AnyProgram], plan: Plan, contract: Contract) -> str:
    """Return the source.

    Raises:
        NoRuleError: a program holds an operation that has no rule in Triton.
    """
    arguments = ", ".join(contract.arguments)
    definitions: dict[str, Kernel] = {}
    functions: list[str] = []
    choices: list[str] = []
    for at, program in enumerate(programs):
        names = Names(program.tensors, contract.arguments, on_gpu=contract.on_gpu)
        kernels = kernels_of(program, plan, names)
        allocations = allocations_of(names, kernels)
        launches = [_renamed(kernel, at, definitions).launch() for kernel in kernels]
        body = indented([*allocations, *launches])
        functions.append("\n".join([f"def run_workload_{at}({arguments}):", *body]))
        choices += [f"if shapes == {_shapes(program.tensors)}:", f"    return run_workload_{at}({arguments})"]
    texts = [kernel.definition() for kernel in definitions.values()]
    last = 'raise ValueError(f"shapes that it was not written for: {shapes}")'
    gathered = f"shapes = [tuple(tensor.shape) for tensor in ({arguments},)]"
    entry = "\n".join([f"def {contract.function}({arguments}):", *indented([gathered, *choices, last])])
    imports = ["import torch", "import triton", "import triton.language as tl"]
    parts = [
        "\n".join([plan_comment(plan, "#"), *imports]),
        *needed_functions("\n".join(texts)),
        *texts,
        *functions,
        entry,
    ]
    return "\n\n\n".join(parts) + "\n"


def _renamed(kernel: Kernel, at: int, known: dict[str, Kernel]) -> Kernel:
    """Return a kernel under a name of its own, or that of an equal one."""
    same = known.setdefault(kernel.definition(), msgspec.structs.replace(kernel, name=f"{kernel.name}_{at}"))
    return msgspec.structs.replace(kernel, name=same.name)


def _shapes(tensors: Sequence[TensorInfo]) -> str:
    """Return the shapes as a Python list: inputs and parameters first, then outputs, without values in between."""
    given = [tensor for tensor in tensors if tensor.role in {"input", "parameter"}]
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    return repr([tuple(tensor.shape) for tensor in (*given, *outputs)])
