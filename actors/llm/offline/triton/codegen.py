"""From a program and a plan to a complete Triton source that keeps the calling contract of the prompt."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from actors.llm.offline.graph import Program
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages.ir import AnyProgram
from actors.llm.offline.triton.kernels import Kernel, indented
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.runtime import needed_functions
from actors.llm.offline.triton.staged import staged_kernels
from actors.llm.offline.triton.unfused import operation_kernels
from actors.llm.offline.triton.work import work_of_program
from messages.base import Language


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """How the candidate is called."""

    language: ClassVar[Language] = "triton"
    function: str
    arguments: tuple[str, ...]
    """Names of inputs and parameters, then of outputs."""
    on_gpu: bool = False
    """Whether it runs on a GPU, and not in Triton's interpreter."""


def write_source(program: AnyProgram, plan: Plan, contract: Contract) -> str:
    """Return the source. Everything in it follows from the graph, the shapes and dtypes, and the plan.

    Raises:
        NoRuleError: it holds an operation that has no rule in Triton.
    """
    names = Names(program.tensors, contract.arguments, on_gpu=contract.on_gpu)
    kernels = kernels_of(program, plan, names)
    allocations = allocations_of(names, kernels)
    definitions = list(dict.fromkeys(kernel.definition() for kernel in kernels))
    imports = [*(["import torch"] if allocations else []), "import triton", "import triton.language as tl"]
    head = f"def {contract.function}({', '.join(contract.arguments)}):"
    launches = [kernel.launch() for kernel in kernels]
    sections = [
        "\n".join([plan_comment(plan, "#"), *imports]),
        *needed_functions("\n".join(definitions)),
        *definitions,
        "\n".join([head, *indented([*allocations, *launches])]),
    ]
    return "\n\n\n".join(sections) + "\n"


def kernels_of(program: AnyProgram, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels in the order of their launches."""
    if not isinstance(program, Program):
        return staged_kernels(program, plan, names)
    work = work_of_program(program, names)
    return [row_kernel(work, plan, names, "row_kernel")] if plan.fuse else operation_kernels(work, plan, names)


def allocations_of(names: Names, kernels: list[Kernel]) -> list[str]:
    """Return the statements that allocate workspaces and values, as far as a kernel uses them."""
    device = f"{names.arguments[-1]}.device"
    needed = {name for kernel in kernels for name in kernel.tensors}
    return [
        f"{tensor.name} = torch.empty({tensor.shape}, dtype=torch.{tensor.dtype}, device={device})"
        for tensor in names.tensors.values()
        if tensor.role == "value" and tensor.name in needed
    ]
