"""Positions along the axes of a kernel, and addresses made of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import Access
from actors.llm.offline.triton.work import row_major


class Numbering(msgspec.Struct, frozen=True):
    """A variable of the source that numbers the points of some axes, outermost first."""

    name: str
    sizes: tuple[int, ...]

    @property
    def axes(self) -> list[str]:
        """The variables that number the points of each axis."""
        return [self.name] if len(self.sizes) == 1 else [f"{self.name}_{axis}" for axis in range(len(self.sizes))]

    def split(self) -> list[str]:
        """Return the statements that make the variables of the axes from the one that numbers all."""
        if len(self.sizes) <= 1:
            return []
        lines = []
        for axis, (name, inner) in enumerate(zip(self.axes, row_major(self.sizes), strict=True)):
            text = self.name if inner == 1 else f"{self.name} // {inner}"
            lines.append(f"{name} = {text}" if axis == 0 else f"{name} = {text} % {self.sizes[axis]}")
        return lines


def place(access: Access, axes: Sequence[str]) -> str:
    """Return the offset of an element, in elements; empty for the first of a tensor.

    Args:
        access: which element.
        axes: the variable of each axis that it has a stride for.
    """
    terms = [
        name if stride == 1 else f"{name} * {stride}"
        for name, stride in zip(axes, access.strides, strict=False)
        if stride
    ]
    return " + ".join([*terms, *([str(access.offset)] if access.offset else [])])
