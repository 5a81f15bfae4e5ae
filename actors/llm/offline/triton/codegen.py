"""From programs and a plan to one Triton source, for one workload or several.

What the rules write knows its shapes; for any others it raises an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from actors.llm.offline.graph import Program, TensorInfo
from actors.llm.offline.plan import Plan, plan_comment
from actors.llm.offline.stages.ir import AnyProgram, Contraction, RowStage, Stage, Staged
from actors.llm.offline.triton.contraction import Epilogue, contraction_kernel, follows, joined, with_others
from actors.llm.offline.triton.kernels import Kernel, indented
from actors.llm.offline.triton.names import Names, work_of_program, work_of_stage
from actors.llm.offline.triton.rows import operation_kernels, row_kernel
from actors.llm.offline.triton.runtime import needed_functions
from messages.base import Language


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A row stage that the tiles of contractions take in."""

    places: tuple[int, ...]
    """Of the contractions in the program."""
    products: tuple[Contraction, ...]
    epilogue: Epilogue


def staged_kernels(program: Staged, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels in the order of their launches.

    A contraction that is joined with later stages is launched in the place of the last: all that they read is complete
    then.
    """
    together = _joined(program, plan) if plan.fuse else {}
    taken = {place for found in together.values() for place in found.places}
    kernels: list[Kernel] = []
    for number, stage in enumerate(program.stages):
        if number not in taken:
            kernels += _stage_kernels(number, stage, together.get(number), plan, names)
    return kernels


def _stage_kernels(number: int, stage: Stage, found: Joined | None, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels of one stage, and of the contractions that it is joined with."""
    if isinstance(stage, Contraction):
        return [contraction_kernel((stage,), plan, names, f"product_{number}")]
    if found is not None:
        return [contraction_kernel(found.products, plan, names, f"product_{number}", found.epilogue)]
    work = work_of_stage(stage, names)
    if plan.fuse:
        return [row_kernel(work, plan, names, f"rows_{number}")]
    return operation_kernels(work, plan, names, f"s{number}_")


def _joined(program: Staged, plan: Plan) -> dict[int, Joined]:
    """Return, by their places, the row stages that the tiles of contractions before them can take in."""
    found: dict[int, Joined] = {}
    for number, rows in enumerate(program.stages):
        if not isinstance(rows, RowStage):
            continue
        before = {place: stage for place, stage in enumerate(program.stages[:number]) if isinstance(stage, Contraction)}
        for first, stage in reversed(before.items()):
            pair = joined(stage, rows, program)
            if pair is not None:
                others = siblings(stage, rows, program, before) if plan.together else {}
                products, epilogue = with_others(pair[0], tuple(others.values()), pair[1])
                found[number] = Joined(places=(first, *others), products=products, epilogue=epilogue)
                break
    return found


def siblings(
    stage: Contraction, rows: RowStage, program: Staged, candidates: Mapping[int, Contraction]
) -> dict[int, Contraction]:
    """Return other contractions that a row stage needs, of which only the right operands differ, by their places."""
    return {
        place: other
        for place, other in candidates.items()
        if other is not stage
        and (other.outer, other.summed, other.left) == (stage.outer, stage.summed, stage.left)
        and other.right.strides == stage.right.strides
        and follows(other, rows, program)
    }


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


def write_workloads(programs: Sequence[AnyProgram], plan: Plan, contract: Contract) -> str:
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
