"""Finds two contractions with a softmax between them: scores, weights, and what the weights are for."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Node
from actors.llm.offline.stages.ir import Contraction, RowStage, Staged
from actors.llm.offline.stages.masks import Bound, bound_of
from actors.llm.offline.triton.axes import common_axes, cut
from actors.llm.offline.triton.epilogue import Epilogue, ancestors, follows, is_dense, over
from actors.llm.offline.triton.work import row_major

_LONGEST = 256
"""Longest vector of a query, key or value that is held on chip."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Three stages as one. Accesses have strides along the axes of the scores first."""

    axes: tuple[int, ...]
    """Of the scores, outermost first."""
    columns: int
    """How many of them, counted from the innermost, are summed over in the end."""
    within: tuple[int, ...]
    """What is summed over for a score."""
    beside: tuple[int, ...]
    """What a result has besides the rows of the scores."""
    query: Access
    """Strides along `axes`, then along `within`."""
    key: Access
    value: Access
    """Strides along `axes`, then along `beside`."""
    target: Access
    epilogue: Epilogue
    """What makes scores of products, and the softmax."""
    score: int
    """The node whose softmax is taken."""
    bound: Bound | None
    """Columns that a mask leaves out."""
    places: tuple[int, int, int]
    """Of the three stages in the program."""

    @property
    def roles(self) -> list[str]:
        """What each of the axes is: a batch, or along the rows (m) or the columns (n) of the scores."""
        rows = len(self.axes) - self.columns
        return ["batch" if stride else "m" for stride in self.key.strides[:rows]] + ["n"] * self.columns


def attentions(program: Staged) -> Iterator[Attention]:
    """Yield what of a program can be computed this way."""
    for number, rows in enumerate(program.stages):
        score = _softmax_of(rows) if isinstance(rows, RowStage) else None
        if not isinstance(rows, RowStage) or score is None:
            continue
        for first, scores in enumerate(program.stages[:number]):
            for last, result in enumerate(program.stages[number + 1 :], start=number + 1):
                if isinstance(scores, Contraction) and isinstance(result, Contraction):
                    found = _matched(program, (scores, rows, result), (first, number, last), score)
                    yield from () if found is None else (found,)


def _softmax_of(rows: RowStage) -> int | None:
    """Return the node whose softmax over the columns a row stage stores; None if it stores something else."""
    nodes = rows.nodes
    match [nodes[arg] for arg in nodes[rows.output].args]:
        case [Node(op="exp", args=(shifted,)), Node(op="sum", args=(summed,))] if nodes[rows.output].op == "div":
            difference = nodes[shifted]
        case _:
            return None
    if summed != nodes[rows.output].args[0] or difference.op != "sub":
        return None
    score, top = difference.args
    if nodes[top].op != "max" or nodes[top].args != (score,):
        return None
    return None if any(nodes[index].op in REDUCTIONS for index in ancestors(nodes, score)) else score


def _matched(
    program: Staged, stages: tuple[Contraction, RowStage, Contraction], places: tuple[int, int, int], score: int
) -> Attention | None:
    """Return three stages as one, over the axes that all of them can be cut into."""
    scores, rows, result = stages
    reads = [access for stage in program.stages for access in stage.reads if access.name == rows.target.name]
    if reads not in ([result.left], [result.right]) or not follows(scores, rows, program):
        return None
    weights, value = (result.left, result.right) if reads == [result.left] else (result.right, result.left)
    order = _row_major_order(result, weights)
    sizes = tuple(result.axes[axis] for axis in order)
    coarse = common_axes(scores.outer, rows.axes)
    finer = None if coarse is None else common_axes(coarse, sizes)
    sums_columns = _sums_columns(result, order, rows)
    if finer is None or not is_dense(rows.target, rows.axes) or not sums_columns:
        return None
    product, epilogue = over(scores, rows, finer)
    columns = _trailing(finer, math.prod(rows.columns))
    beside = [axis for axis in range(len(result.outer)) if axis not in order and result.outer[axis] > 1]

    def along(access: Access) -> Access:
        strides = cut(sizes, [access.strides[axis] for axis in order], finer)
        return msgspec.structs.replace(access, strides=(*strides, *(access.strides[axis] for axis in beside)))

    turned = any(product.left.strides[len(finer) - columns : len(finer)])
    found = Attention(
        axes=finer,
        columns=columns,
        within=scores.summed,
        beside=tuple(result.outer[axis] for axis in beside),
        query=product.right if turned else product.left,
        key=product.left if turned else product.right,
        value=along(value),
        target=along(result.target),
        epilogue=epilogue,
        score=score,
        bound=bound_of(rows),
        places=places,
    )
    return found if _fits(found) else None


def _row_major_order(result: Contraction, weights: Access) -> list[int]:
    """Return the axes along which the weights lie, outermost first; empty if they are not gone through densely."""
    order = [axis for axis, size in enumerate(result.axes) if weights.strides[axis] and size > 1]
    order.sort(key=lambda axis: -weights.strides[axis])
    dense = row_major([result.axes[axis] for axis in order])
    return order if tuple(weights.strides[axis] for axis in order) == dense and not weights.offset else []


def _sums_columns(result: Contraction, order: list[int], rows: RowStage) -> bool:
    """Say whether the last contraction sums over the columns of the weights and nothing else."""
    summed = [axis for axis in range(len(result.outer), len(result.axes)) if result.axes[axis] > 1]
    return math.prod(rows.columns) == math.prod(result.summed) and sorted(order[len(order) - len(summed) :]) == summed


def _trailing(axes: tuple[int, ...], count: int) -> int:
    """Return how many of the innermost axes have `count` points."""
    return next(number for number in range(len(axes) + 1) if math.prod(axes[len(axes) - number :]) == count)


def _fits(found: Attention) -> bool:
    """Say whether rows share their keys and values, and vectors are short enough for the chip."""
    rows = len(found.axes) - found.columns
    shared = all(not found.value.strides[axis] for axis in range(rows) if found.roles[axis] == "m")
    scored = not any(found.query.strides[rows : len(found.axes)]) and all(found.key.strides[rows : len(found.axes)])
    return shared and scored and max(math.prod(found.within), math.prod(found.beside)) <= _LONGEST
