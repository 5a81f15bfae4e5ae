"""Writes a staged program: a kernel per contraction, and row stages by themselves or on the tiles of a contraction."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction, RowStage, Stage, Staged
from actors.llm.offline.triton.contraction import contraction_kernel
from actors.llm.offline.triton.epilogue import Epilogue, follows, joined, with_others
from actors.llm.offline.triton.kernels import Kernel
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.rows import row_kernel
from actors.llm.offline.triton.unfused import operation_kernels
from actors.llm.offline.triton.work import work_of_stage


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
