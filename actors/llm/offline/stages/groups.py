"""Groups of stages that a program can run block of rows by block of rows: what they pass on stays on chip.

Stages of a group number their rows alike, and read each other's results only in the row that they are at.
"""

from __future__ import annotations

import itertools
import math

import msgspec

from actors.llm.offline.graph import Access, NoRuleError
from actors.llm.offline.stages.axes import split_outer
from actors.llm.offline.stages.index import row_major
from actors.llm.offline.stages.ir import Contraction, RowStage, Stage, Staged

_FEW_ROWS = 8
_SHARE = 64


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Stages to run together, one after another for each block of rows."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first; at least one. They are the first axes of every stage."""
    stages: tuple[Stage, ...]
    local: frozenset[str]
    """Values that nothing outside of the group reads: one row of them is needed at a time."""


def grouped(program: Staged, *, fuse: bool) -> tuple[Group, ...]:
    """Return the stages in groups, in order; without `fuse` each stage is a group of its own."""
    found: list[list[Stage]] = []
    for stage in program.stages:
        found[-1:] = _joined(found[-1] if found else [], stage) if fuse else [*found[-1:], [stage]]
    return tuple(_finished(stages, program, index, found) for index, stages in enumerate(found))


def rows_of(stage: Stage) -> tuple[int, ...]:
    """Return the sizes of the axes that number a stage's rows."""
    return stage.rows if isinstance(stage, RowStage) else stage.outer


def stride_in(access: Access, count: int) -> tuple[int, ...]:
    """Return the strides along the first axes."""
    return access.strides[:count]


def _joined(group: list[Stage], stage: Stage) -> list[list[Stage]]:
    """Return a group with the stage added, or both apart."""
    if not group:
        return [[stage]]
    for rows in _row_counts([*group, stage]):
        try:
            aligned = _aligned([*group, stage], rows)
        except NoRuleError:
            continue
        if aligned is not None and _stays_in_row(aligned):
            return [[*group, stage]]
    return [group, [stage]]


def _row_counts(stages: list[Stage]) -> list[int]:
    """Return the numbers of rows that stages can have in common, likeliest first."""
    fixed = {math.prod(stage.rows) for stage in stages if isinstance(stage, RowStage)}
    if fixed:
        return list(fixed) if len(fixed) == 1 else []
    return [math.prod(stage.outer[:-1]) for stage in stages if isinstance(stage, Contraction)][:1]


def _aligned(stages: list[Stage], rows: int) -> list[tuple[Stage, int]] | None:
    """Return the stages with the same row axes, and how many those are; None if there are none.

    Raises:
        NoRuleError: a stage's axes cannot be cut where another one's are.
    """
    cut: list[Stage] = []
    for stage in stages:
        total = math.prod(rows_of(stage))
        if total % rows:
            return None
        cut.append(split_outer(stage, total // rows))
    counts = [_leading(stage, rows) for stage in cut]
    places = {place for stage, count in zip(cut, counts, strict=True) for place in _places(rows_of(stage)[:count])}
    chain = sorted(places | {1, rows})
    if any(high % low for low, high in itertools.pairwise(chain)):
        return None
    refined: list[tuple[Stage, int]] = []
    for stage in cut:
        columns = math.prod(rows_of(stage)) // rows
        for place in chain[1:-1]:
            stage = split_outer(stage, place * columns)  # noqa: PLW2901 - cut once per place
        refined.append((stage, _leading(stage, rows)))
    return refined


def _leading(stage: Stage, rows: int) -> int:
    """Return how many of a stage's first axes make up its rows."""
    sizes = rows_of(stage)
    return next(count for count in range(len(sizes) + 1) if math.prod(sizes[:count]) == rows)


def _places(sizes: tuple[int, ...]) -> list[int]:
    return [math.prod(sizes[position:]) for position in range(len(sizes))]


def _stays_in_row(aligned: list[tuple[Stage, int]]) -> bool:
    """Say whether each stage reads results of earlier ones only in its own row."""
    written: dict[str, Access] = {}
    for stage, count in aligned:
        rows = rows_of(stage)[:count]
        for access in stage.reads:
            if access.name in written and not _same_row(written[access.name], access, stage, count):
                return False
        whole = isinstance(stage, Contraction) or stage.stores_columns
        columns = stage.outer[count:] if isinstance(stage, Contraction) else stage.columns
        length = math.prod(columns) if whole else 1
        standard = tuple(stride * length for stride in row_major(rows))
        if stage.target.strides[:count] == standard and stage.target.offset == 0:
            written[stage.target.name] = stage.target
        else:
            written[stage.target.name] = Access(stage.target.name, -1, stage.target.strides)
    return True


def _same_row(target: Access, read: Access, stage: Stage, count: int) -> bool:
    if target.offset < 0 or read.strides[:count] != target.strides[:count]:
        return False
    inner = stage.axes[count:]
    reach = sum(stride * (size - 1) for stride, size in zip(read.strides[count:], inner, strict=True))
    length = target.strides[count - 1] if count else math.inf
    return read.offset == 0 and reach < length


def _finished(stages: list[Stage], program: Staged, index: int, groups: list[list[Stage]]) -> Group:
    outside = {access.name for number, others in enumerate(groups) if number != index
               for stage in others for access in stage.reads}  # fmt: skip
    written = {stage.target.name for stage in stages}
    values = {tensor.name for tensor in program.tensors if tensor.role == "value"}
    local = frozenset(written & values) - outside
    if len(stages) == 1:
        stages = [_shared_out(stages[0])]
    for rows in _row_counts(stages):
        aligned = _aligned(stages, rows)
        if aligned is not None:
            count = aligned[0][1]
            whole = [_with_row(stage) if count == 0 else stage for stage, _ in aligned]
            return Group(rows=rows_of(whole[0])[: max(count, 1)], stages=tuple(whole), local=local)
    raise NoRuleError("stages whose rows do not fit each other")


def _shared_out(stage: Stage) -> Stage:
    """Cut the columns of a contraction with few rows, so that there is something to share among threads."""
    if not isinstance(stage, Contraction) or not stage.outer or math.prod(stage.outer[:-1]) >= _FEW_ROWS:
        return stage
    share = next((size for size in range(_SHARE, 0, -1) if stage.outer[-1] % size == 0), 1)
    return split_outer(stage, share) if 1 < share < stage.outer[-1] else stage


def _with_row(stage: Stage) -> Stage:
    """Return the stage with a row axis of size 1 in front."""

    def wider(access: Access) -> Access:
        return Access(access.name, access.offset, (0, *access.strides))

    if isinstance(stage, Contraction):
        return msgspec.structs.replace(
            stage, outer=(1, *stage.outer), left=wider(stage.left), right=wider(stage.right), target=wider(stage.target)
        )
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=wider(node.access))
        for node in stage.nodes
    )
    return msgspec.structs.replace(stage, rows=(1, *stage.rows), nodes=nodes, target=wider(stage.target))
