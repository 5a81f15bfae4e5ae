"""Writes attention as one kernel: scores and weights stay on chip while the columns of the scores pass by in blocks.

With the largest score so far and the sum of exponentials relative to it, a block's weights are taken in before later
ones are known; what was added up before is scaled when a larger score turns up (online softmax: Milakov and Gimelshein
2018, section 3; with the second product: Dao et al. 2022, algorithm 1).
"""

from __future__ import annotations

import math

from actors.llm.offline.graph import Access
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.attention import Attention
from actors.llm.offline.triton.contraction import Operands, longest_step
from actors.llm.offline.triton.epilogue import ancestors
from actors.llm.offline.triton.expressions import Writer, address
from actors.llm.offline.triton.kernels import Kernel, indented, launch_options, next_power_of_two, used
from actors.llm.offline.triton.names import Names
from actors.llm.offline.triton.tiles import ACROSS, DOWN, TileAxes

_BLOCK_M, _BLOCK_N = 32, 64
"""Rows of scores, and columns that pass by at a time, where the plan does not say."""
_WHOLE = 1 << 16
"""Of a side that is not cut."""


def attention_kernel(attention: Attention, plan: Plan, names: Names, name: str) -> Kernel:
    """Return the kernel."""
    return _Online(attention, plan, names, name).kernel()


class _Online:
    """One kernel under construction."""

    def __init__(self, attention: Attention, plan: Plan, names: Names, name: str) -> None:
        self._attention = attention
        self._plan = plan
        self._names = names
        self._name = name
        self._query, self._key, self._value = map(names.read, (attention.query, attention.key, attention.value))
        self._target = names.written(attention.target)
        dtypes = [names.tensors[access.name].dtype for access in (self._query, self._key, self._value)]
        self._scoring = Operands((dtypes[0], dtypes[1]), names.real, plan, on_gpu=names.on_gpu)
        self._weighting = Operands((names.real, dtypes[2]), names.real, plan, on_gpu=names.on_gpu)
        vectors = sum(next_power_of_two(math.prod(sizes)) for sizes in (attention.within, attention.beside))
        passing = min(plan.block_n or _BLOCK_N, longest_step(vectors, plan))
        blocks = {"m": plan.block_m or _BLOCK_M, "n": passing}
        within = (*attention.axes, *attention.within), [*attention.roles, *("d" for _ in attention.within)]
        beside = (*attention.axes, *attention.beside), [*attention.roles, *("e" for _ in attention.beside)]
        self._bound = attention.bound if plan.skip else None
        self._known = ancestors(attention.epilogue.nodes, self._bound.place) if self._bound else set()
        self._scores = TileAxes(*within, {**blocks, "d": _WHOLE}, {"n": ACROSS, "d": ACROSS})
        self._keys = TileAxes(*within, {**blocks, "d": _WHOLE}, {"n": ACROSS, "d": DOWN})
        self._results = TileAxes(*beside, {**blocks, "e": _WHOLE}, {"n": DOWN, "e": ACROSS})

    def kernel(self) -> Kernel:
        """Return it."""
        counts = {**self._scores.counts, **self._results.counts}
        blocks = {**self._scores.blocks, **self._results.blocks}
        tiles = math.ceil(counts["m"] / blocks["m"])
        constants = {side.upper(): counts[side] for side in blocks}
        constants |= {f"BLOCK_{side.upper()}": size for side, size in blocks.items()} | {"TILES_M": tiles}
        reads = (self._query, self._key, self._value)
        written = self._target
        return Kernel(
            name=self._name,
            tensors=used(access.name for access in (*reads, *self._attention.epilogue.others(self._names), written)),
            constants=constants,
            body=(*self._positions(), *self._start(), *self._loop(), self._end()),
            grid=(counts["batch"] * tiles,),
            options=launch_options(self._plan),
        )

    def _positions(self) -> list[str]:
        large = any(math.prod(tensor.shape) >= 1 << 31 for tensor in self._names.tensors.values())
        batched = self._scores.counts["batch"] > 1
        return [
            f"program = tl.program_id(0){'.to(tl.int64)' if large else ''}",
            *(["batch = program // TILES_M", *self._scores.split("batch")] if batched else []),
            "m = program % TILES_M * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            *self._scores.split("m"),
            "d = tl.arange(0, BLOCK_D)",
            *self._scores.split("d"),
            "e = tl.arange(0, BLOCK_E)",
            *self._results.split("e"),
        ]

    def _start(self) -> list[str]:
        real = self._scoring.real
        query = self._scoring.widened(self._loaded(self._query, self._scores, "m", "d"), 0)
        return [
            f"query = {query}",
            f'top = tl.full((BLOCK_M, 1), float("-inf"), {real})',
            f"total = tl.zeros((BLOCK_M, 1), {self._weighting.accumulator})",
            f"result = tl.zeros((BLOCK_M, BLOCK_E), {self._weighting.accumulator})",
        ]

    def _loop(self) -> list[str]:
        attention, scoring, weighting = self._attention, self._scoring, self._weighting
        zeros = f"tl.zeros((BLOCK_M, BLOCK_N), {scoring.accumulator})"
        narrowed = "" if scoring.accumulator == scoring.real else f".to({scoring.real})"
        bound = self._scores.bound("n")
        score = f"v{attention.score}"
        lines = [
            "n = start + tl.arange(0, BLOCK_N)",
            *self._scores.split("n"),
            f"key = {scoring.widened(self._loaded(self._key, self._keys, 'd', 'n'), 1)}",
            f"acc = {scoring.dot('query', 'key', zeros)}{narrowed}",
            *attention.epilogue.values(self._scores, self._names, self._plan, attention.score, self._known),
            f'scores = tl.where({bound}, {score}, float("-inf"))' if bound else f"scores = {score}",
            "higher = tl.maximum(top, tl.max(scores, axis=1, keep_dims=True))",
            # A row of which nothing was seen yet but -inf: -inf less -inf is no number.
            'base = tl.where(higher == float("-inf"), 0.0, higher)',
            f"weights = {self._exponential('scores - base')}",
            f"kept = {self._exponential('top - base')}",
            "total = total * kept + tl.sum(weights, axis=1, keep_dims=True)",
            f"value = {weighting.widened(self._loaded(self._value, self._results, 'n', 'e'), 1)}",
            f"result = {weighting.dot(weighting.widened('weights', 0), 'value', 'result * kept')}",
            "top = higher",
        ]
        return [*self._stop(), f"for start in range(0, {'stop' if self._bound else 'N'}, BLOCK_N):", *indented(lines)]

    def _stop(self) -> list[str]:
        """Return the statements that say before which column the last row of the tile ends, if a mask says so."""
        if self._bound is None:
            return []
        place, epilogue = self._bound.place, self._attention.epilogue
        spread = f"tl.floor(v{place}) + tl.full((BLOCK_M, 1), {float(self._bound.more)}, {self._scoring.real})"
        return [
            *epilogue.values(self._scores, self._names, self._plan, place),
            f"stop = tl.max(tl.max({spread}, axis=1), axis=0)",
            "stop = tl.minimum(stop, N).to(tl.int32)",
        ]

    def _end(self) -> str:
        real = self._scoring.real
        narrowed = "" if self._weighting.accumulator == real else f".to({real})"
        offset, mask = self._results.block(self._target, "m", "e")
        return self._writer().stored(self._target.name, offset, f"(result / total){narrowed}", mask)

    def _loaded(self, access: Access, axes: TileAxes, *sides: str) -> str:
        offset, mask = axes.block(access, *sides)
        guard = f", mask={mask}, other=0.0" if mask else ""
        return f"tl.load({address(access.name, offset)}{guard})"

    def _exponential(self, text: str) -> str:
        return self._writer().arithmetic.call("tl.exp", text)

    def _writer(self) -> Writer:
        return Writer((), self._names.tensors, self._names.real, self._plan)
