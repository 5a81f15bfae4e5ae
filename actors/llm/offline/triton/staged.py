"""Writes a staged program: a kernel per contraction, and row stages by themselves or on the tiles of a contraction."""

from __future__ import annotations

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction, RowStage, Staged
from actors.llm.offline.triton.contraction import contraction_kernel
from actors.llm.offline.triton.epilogue import Epilogue, joined
from actors.llm.offline.triton.kernels import Kernel
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.unfused import operation_kernels
from actors.llm.offline.triton.work import work_of_stage


def staged_kernels(program: Staged, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels in the order of their launches."""
    pairs = _pairs(program) if plan.fuse else {}
    kernels: list[Kernel] = []
    for number, stage in enumerate(program.stages):
        if isinstance(stage, Contraction):
            if all(number != first for first, _, _ in pairs.values()):
                kernels.append(contraction_kernel(stage, plan, names, f"product_{number}"))
        elif number in pairs:
            _, product, epilogue = pairs[number]
            kernels.append(contraction_kernel(product, plan, names, f"product_{number}", epilogue))
        elif plan.fuse:
            kernels.append(row_kernel(work_of_stage(stage, names), plan, names, f"rows_{number}"))
        else:
            kernels += operation_kernels(work_of_stage(stage, names), plan, names, f"s{number}_")
    return kernels


def _pairs(program: Staged) -> dict[int, tuple[int, Contraction, Epilogue]]:
    """Return, by their places, the row stages that a contraction's tiles can take in, with the contraction's place.

    A contraction that is joined with a later stage is launched there: what else that reads is complete then.
    """
    found: dict[int, tuple[int, Contraction, Epilogue]] = {}
    for number, rows in enumerate(program.stages):
        if not isinstance(rows, RowStage):
            continue
        for first in reversed(range(number)):
            stage = program.stages[first]
            pair = joined(stage, rows, program) if isinstance(stage, Contraction) else None
            if pair is not None:
                found[number] = (first, *pair)
                break
    return found
