"""Axes of stages: from digits of dimensions to axes along which every access is affine, and fewer where they allow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import Access, Node, NoRuleError
from actors.llm.offline.stages.index import Index
from actors.llm.offline.stages.ir import Contraction, RowStage

Sizes = tuple[list[int], list[int]]
"""Sizes of the axes of a stage's first and second part: rows and columns, or outer and summed ones."""


def refined(dims: Sequence[int], first: int, raws: Sequence[tuple[str, Index]]) -> tuple[Sizes, list[Access]]:
    """Cut dimensions into axes along which all accesses are affine.

    Args:
        dims: sizes of the dimensions.
        first: how many of them make the first part.
        raws: tensors, and where in them.

    Raises:
        NoRuleError: two accesses cut a dimension at places that do not divide each other.
    """
    cuts = [_cuts(dim, size, raws) for dim, size in enumerate(dims)]
    axes = [(dim, low, high // low) for dim, places in enumerate(cuts) for low, high in places]
    sizes: Sizes = ([], [])
    for dim, _, size in axes:
        sizes[0 if dim < first else 1].append(size)
    accesses = []
    for name, index in raws:
        strides = [0] * len(axes)
        for term in index.terms:
            for position, (dim, low, size) in enumerate(axes):
                if dim == term.dim and term.div <= low and low * size <= term.div * term.mod:
                    strides[position] += term.scale * (low // term.div)
        accesses.append(Access(name, index.offset, tuple(strides)))
    return sizes, accesses


def _cuts(dim: int, size: int, raws: Sequence[tuple[str, Index]]) -> list[tuple[int, int]]:
    """Return the digits of a dimension, the most significant first, as (place, place of the next one)."""
    if size == 1:
        return []
    places = {1, size}
    for _, index in raws:
        for term in index.terms:
            if term.dim == dim:
                places |= {term.div, min(term.div * term.mod, size)}
    chain = sorted(places)
    if any(high % low for low, high in itertools.pairwise(chain)):
        raise NoRuleError(f"a dimension of size {size} that is cut at {chain[1:-1]}")
    return list(itertools.pairwise(chain))[::-1]


def collapsed_contraction(stage: Contraction) -> Contraction:
    """Return the stage with as few axes as possible."""
    accesses = [stage.left, stage.right, stage.target]
    sizes, accesses = _collapsed((list(stage.outer), list(stage.summed)), accesses)
    return Contraction(
        outer=tuple(sizes[0]), summed=tuple(sizes[1]), left=accesses[0], right=accesses[1], target=accesses[2]
    )


def collapsed_rows(stage: RowStage) -> RowStage:
    """Return the stage with as few axes as possible."""
    used = [node.access for node in stage.nodes if node.access is not None]
    sizes, accesses = _collapsed((list(stage.rows), list(stage.columns)), [*used, stage.target])
    return _with_accesses(stage, sizes, accesses)


def split_outer(stage: Contraction | RowStage, inner: int) -> Contraction | RowStage:
    """Return the stage with an axis boundary among its rows (or outer axes) at `inner` elements from their end.

    Raises:
        NoRuleError: no axis can be cut there.
    """
    outer = stage.outer if isinstance(stage, Contraction) else stage.rows
    reach = 1
    for position in reversed(range(len(outer))):
        if reach == inner:
            return stage
        if reach * outer[position] > inner:
            return _split_axis(stage, position, inner // reach) if inner % reach == 0 else _uncut(inner)
        reach *= outer[position]
    return stage if reach == inner else _uncut(inner)


def _uncut(inner: int) -> Contraction | RowStage:
    raise NoRuleError(f"axes that cannot be cut at {inner}")


def _split_axis(stage: Contraction | RowStage, position: int, low: int) -> Contraction | RowStage:
    """Cut one of the first axes into two, the second of size `low`."""

    def cut(access: Access) -> Access:
        stride = access.strides[position]
        strides = (*access.strides[:position], stride * low, stride, *access.strides[position + 1 :])
        return Access(access.name, access.offset, strides)

    outer = stage.outer if isinstance(stage, Contraction) else stage.rows
    if outer[position] % low:
        _uncut(low)
    sizes = (*outer[:position], outer[position] // low, low, *outer[position + 1 :])
    if isinstance(stage, Contraction):
        return msgspec.structs.replace(
            stage, outer=sizes, left=cut(stage.left), right=cut(stage.right), target=cut(stage.target)
        )
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=cut(node.access)) for node in stage.nodes
    )
    return msgspec.structs.replace(stage, rows=sizes, nodes=nodes, target=cut(stage.target))


def _with_accesses(stage: RowStage, sizes: Sizes, accesses: Sequence[Access]) -> RowStage:
    left = iter(accesses)
    nodes: list[Node] = [
        node if node.access is None else msgspec.structs.replace(node, access=next(left)) for node in stage.nodes
    ]
    return RowStage(
        rows=tuple(sizes[0]), columns=tuple(sizes[1]), nodes=tuple(nodes), output=stage.output, target=next(left)
    )


def _collapsed(sizes: Sizes, accesses: Sequence[Access]) -> tuple[Sizes, list[Access]]:
    """Join neighbouring axes of a part that every access walks through as if they were one."""
    axes = [(part, size) for part in (0, 1) for size in sizes[part]]
    strides = [list(access.strides) for access in accesses]
    position = len(axes) - 1
    while position > 0:
        (part, outer), (other, inner) = axes[position - 1], axes[position]
        if part == other and all(found[position - 1] == inner * found[position] for found in strides):
            axes[position - 1 : position + 1] = [(part, outer * inner)]
            for found in strides:
                del found[position - 1]
        position -= 1
    kept: Sizes = ([size for part, size in axes if part == 0], [size for part, size in axes if part == 1])
    return kept, [
        Access(access.name, access.offset, tuple(found)) for access, found in zip(accesses, strides, strict=True)
    ]
