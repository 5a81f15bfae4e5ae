"""From a program and a plan to a complete Triton source that keeps the calling contract of the prompt."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from actors.llm.offline.graph import Program, TensorInfo
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.triton.expressions import identifier
from actors.llm.offline.triton.kernels import Kernel, indented
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.runtime import needed_functions
from actors.llm.offline.triton.unfused import operation_kernels
from messages.base import Language


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """How the candidate is called."""

    language: ClassVar[Language] = "triton"
    function: str
    arguments: tuple[str, ...]
    """Names of inputs and parameters, then of outputs."""


def write_source(program: Program, plan: Plan, contract: Contract) -> str:
    """Return the source. Everything in it follows from the graph, the shapes and dtypes, and the plan.

    Raises:
        NoRuleError: it holds an operation that has no rule in Triton.
    """
    workspaces, kernels = _kernels(_renamed(program, contract), plan)
    definitions = [kernel.definition() for kernel in kernels]
    imports = [*(["import torch"] if workspaces else []), "import triton", "import triton.language as tl"]
    sections = [
        "\n".join([plan_comment(plan, "#"), *imports]),
        *needed_functions("\n".join(definitions)),
        *definitions,
        _entry_point(workspaces, kernels, plan, contract),
    ]
    return "\n\n\n".join(sections) + "\n"


def _kernels(program: Program, plan: Plan) -> tuple[list[TensorInfo], list[Kernel]]:
    """Return the workspaces and the kernels in the order of their launches."""
    return ([], [row_kernel(program, plan, "row_kernel")]) if plan.fuse else operation_kernels(program, plan)


def _renamed(program: Program, contract: Contract) -> Program:
    """Return the program with its tensors called as the contract calls them."""
    ordered = [tensor for tensor in program.tensors if tensor.role != "output"]
    ordered += [tensor for tensor in program.tensors if tensor.role == "output"]
    names = {(tensor.role == "output", tensor.name): name
             for tensor, name in zip(ordered, contract.arguments, strict=True)}  # fmt: skip
    tensors = tuple(
        msgspec.structs.replace(tensor, name=names[tensor.role == "output", tensor.name]) for tensor in program.tensors
    )
    nodes = tuple(
        msgspec.structs.replace(node, name=names[False, node.name]) if node.op == "load" else node
        for node in program.nodes
    )
    return msgspec.structs.replace(program, nodes=nodes, tensors=tensors)


def _entry_point(workspaces: list[TensorInfo], kernels: list[Kernel], plan: Plan, contract: Contract) -> str:
    device = f"{contract.arguments[-1]}.device"
    lines = [
        f"{identifier(tensor)} = torch.empty({tensor.shape}, dtype=torch.{tensor.dtype}, device={device})"
        for tensor in workspaces
    ]
    lines += [kernel.launch(plan) for kernel in kernels]
    head = f"def {contract.function}({', '.join(contract.arguments)}):"
    return "\n".join([head, *indented(lines)])
