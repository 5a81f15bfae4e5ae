"""Axes cut into finer ones, so that stages that number the same elements in other ways can meet in one kernel."""

from __future__ import annotations

from collections.abc import Sequence


def common_axes(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the coarsest axes of which both can be made by joining neighbours; None if there are none.

    >>> common_axes((4, 16, 512), (64, 512))
    (4, 16, 512)
    """
    left, right = [size for size in one if size > 1], [size for size in other if size > 1]
    found: list[int] = []
    while left and right:
        inner = min(left[-1], right[-1])
        if max(left[-1], right[-1]) % inner:
            return None
        found.append(inner)
        for sizes in (left, right):
            sizes[-1] //= inner
            if sizes[-1] == 1:
                sizes.pop()
    return None if left or right else tuple(reversed(found))


def cut(sizes: Sequence[int], strides: Sequence[int], finer: Sequence[int]) -> tuple[int, ...]:
    """Return the strides along finer axes, of which neighbours make up the axes given.

    >>> cut((64, 512), (512, 1), (4, 16, 512))
    (8192, 512, 1)
    """
    rest = [(size, stride) for size, stride in zip(sizes, strides, strict=False) if size > 1]
    found: list[int] = []
    for size in reversed(finer):
        left, stride = rest.pop()
        found.append(stride)
        if left > size:
            rest.append((left // size, stride * size))
    return tuple(reversed(found))
