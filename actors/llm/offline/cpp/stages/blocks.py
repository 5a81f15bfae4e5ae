"""Writes a group of stages: the loop over its blocks of rows, and what must be ready before it."""

from __future__ import annotations

import math

from actors.llm.offline.cpp.expressions import Writer
from actors.llm.offline.cpp.loops import indented
from actors.llm.offline.cpp.stages.contraction import ContractionWriter
from actors.llm.offline.cpp.stages.places import Places, local_name
from actors.llm.offline.cpp.stages.rows import StageRows
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.groups import Group
from actors.llm.offline.stages.ir import Contraction, RowStage
from actors.llm.offline.stages.masks import Bound, bound_of

_FUSED_ROWS = 16
_ROWS = 64


class GroupWriter:
    """One group under construction. Contractions are numbered from `first` on."""

    def __init__(self, group: Group, first: int, plan: Plan, writer: Writer, places: Places) -> None:
        self._group = group
        self._plan = plan
        self._writer = writer
        self._local = _local(group) if plan.fuse else {}
        places.enter(group.rows, self._local)
        written = frozenset(stage.target.name for stage in group.stages)
        self._rows: dict[int, StageRows] = {}
        self._contractions: dict[int, ContractionWriter] = {}
        for position, stage in enumerate(group.stages):
            if isinstance(stage, RowStage):
                self._rows[position] = StageRows(stage, plan, writer, places)
            else:
                number = first + len(self._contractions)
                self._contractions[position] = ContractionWriter(stage, number, plan, writer, places, written)
        self._bounded, self._bound = self._find_bound() if plan.skip else (-1, None)

    def kernels(self) -> list[list[str]]:
        """Return the definitions of the contractions' kernels."""
        return [kernel for writer in self._contractions.values() if (kernel := writer.kernel())]

    def lines(self) -> list[str]:
        """Return the statements."""
        threads = self._plan.threads
        group = self._group
        inner = group.rows[-1]
        block = min(inner, self._plan.rows or (_FUSED_ROWS if self._local else _ROWS))
        blocks = -(-inner // block)
        packs = [line for writer in self._contractions.values() for line in writer.packing(threads=threads)]
        buffers: list[str] = []
        for name, length in self._local.items():
            buffer = local_name(name)
            buffers.append(f"std::vector<real> stored_{buffer}({block * length});")
            buffers.append(f"real* {buffer} = stored_{buffer}.data();")
        schedule = "dynamic" if self._plan.dynamic else "static"
        loop = [
            *([f"#pragma omp for schedule({schedule})"] if threads else []),
            f"for (int64_t block = 0; block < {math.prod(group.rows[:-1]) * blocks}; ++block) {{",
            *indented(self._block(block, blocks)),
            "}",
        ]
        parallel = ["#pragma omp parallel"] if threads else []
        return ["{", *indented([*packs, *parallel, "{", *indented([*buffers, *loop]), "}"]), "}"]

    def _block(self, block: int, blocks: int) -> list[str]:
        """Return the statements for one block of rows."""
        rows = self._group.rows
        lines = [
            f"[[maybe_unused]] const int64_t start = block % {blocks} * {block};",
            f"const int64_t count = {rows[-1]} - start < {block} ? {rows[-1]} - start : {block};",
            f"[[maybe_unused]] int64_t rest = block / {blocks};",
        ]
        for axis in reversed(range(len(rows) - 1)):
            lines += [f"[[maybe_unused]] const int64_t o{axis} = rest % {rows[axis]};", f"rest /= {rows[axis]};"]
        if self._bound is not None:
            lines += self._rows[self._bounded].limit(self._bound)
        for position in range(len(self._group.stages)):
            if position in self._rows:
                body = self._rows[position].lines(bounded=position == self._bounded)
            else:
                columns, depth = self._limits(position)
                body = self._contractions[position].lines(columns=columns, depth=depth)
            lines += ["{", *indented(body), "}"]
        return lines

    def _find_bound(self) -> tuple[int, Bound | None]:
        """Return a row stage whose masked columns need not be computed, since only sums over them use its result."""
        stages = self._group.stages
        for position, stage in enumerate(stages):
            bound = bound_of(stage) if isinstance(stage, RowStage) else None
            if bound is not None and stage.target.name in self._group.local:
                users = self._users(stage.target.name)
                if all(at in self._contractions and self._sums_over(at, stage.target.name) for at in users):
                    return position, bound
        return -1, None

    def _sums_over(self, position: int, name: str) -> bool:
        return self._contractions[position].sums_along(name)

    def _users(self, name: str) -> list[int]:
        """Return the stages that read a value."""
        return [at for at, stage in enumerate(self._group.stages) if any(access.name == name for access in stage.reads)]

    def _limits(self, position: int) -> tuple[str, str]:
        """Return to where a contraction's columns and its sum go, if a mask bounds them."""
        stage, masked = self._group.stages[position], self._group.stages[self._bounded]
        if self._bound is None or not isinstance(stage, Contraction):
            return "", ""
        count = len(self._group.rows)
        name = stage.target.name
        along = [access.strides[count:] == (1,) for access in masked.reads if access.name == name]
        is_fed = self._users(name) == [self._bounded] and all(along) and name in self._group.local
        columns = is_fed and len(stage.outer) == count + 1
        depth = any(access.name == masked.target.name for access in stage.reads)
        return "limit" if columns else "", "limit" if depth else ""


def _local(group: Group) -> dict[str, int]:
    """Return the values of a group that stay in buffers, and their elements per row."""
    found = {}
    for stage in group.stages:
        if stage.target.name in group.local:
            columns = stage.outer[len(group.rows) :] if isinstance(stage, Contraction) else stage.columns
            whole = isinstance(stage, Contraction) or stage.stores_columns
            found[stage.target.name] = math.prod(columns) if whole else 1
    return found
