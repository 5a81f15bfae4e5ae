"""Writes a staged program: a kernel per contraction, and row stages by themselves or on the tiles of a contraction."""

from __future__ import annotations

from typing import TypeAlias

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction, RowStage, Stage, Staged
from actors.llm.offline.triton.attention import attentions
from actors.llm.offline.triton.contraction import contraction_kernel
from actors.llm.offline.triton.epilogue import Epilogue, joined
from actors.llm.offline.triton.kernels import Kernel
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.online import attention_kernel
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.unfused import operation_kernels
from actors.llm.offline.triton.work import work_of_stage

Pairs: TypeAlias = dict[int, tuple[int, Contraction, Epilogue]]


def staged_kernels(program: Staged, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels in the order of their launches.

    A contraction that is joined with later stages is launched in the place of the last: all that they read is complete
    then.
    """
    online = {found.places: found for found in attentions(program)} if plan.online else {}
    taken = {place for places in online for place in places}
    pairs = _pairs(program, taken) if plan.fuse else {}
    kernels: list[Kernel] = []
    for number, stage in enumerate(program.stages):
        for places, attention in online.items():
            if number == places[-1]:
                kernels.append(attention_kernel(attention, plan, names, f"attention_{number}"))
        if number not in taken:
            kernels += _stage_kernels(number, stage, pairs, plan, names)
    return kernels


def _stage_kernels(number: int, stage: Stage, pairs: Pairs, plan: Plan, names: Names) -> list[Kernel]:
    """Return the kernels of one stage, and of the contraction that it is joined with."""
    if isinstance(stage, Contraction):
        joined_later = any(number == first for first, _, _ in pairs.values())
        return [] if joined_later else [contraction_kernel(stage, plan, names, f"product_{number}")]
    if number in pairs:
        _, product, epilogue = pairs[number]
        return [contraction_kernel(product, plan, names, f"product_{number}", epilogue)]
    work = work_of_stage(stage, names)
    if plan.fuse:
        return [row_kernel(work, plan, names, f"rows_{number}")]
    return operation_kernels(work, plan, names, f"s{number}_")


def _pairs(program: Staged, taken: set[int]) -> Pairs:
    """Return, by their places, the row stages that a contraction's tiles can take in, with the contraction's place."""
    found: Pairs = {}
    for number, rows in enumerate(program.stages):
        if not isinstance(rows, RowStage) or number in taken:
            continue
        for first in reversed([first for first in range(number) if first not in taken]):
            stage = program.stages[first]
            pair = joined(stage, rows, program) if isinstance(stage, Contraction) else None
            if pair is not None:
                found[number] = (first, *pair)
                break
    return found
