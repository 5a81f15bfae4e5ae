"""The axes of a tile: which belong to its rows (m), to its columns (n), and which number the batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from actors.llm.offline.graph import Access
from actors.llm.offline.triton.kernels import next_power_of_two
from actors.llm.offline.triton.places import Numbering, place

DOWN, ACROSS = "[:, None]", "[None, :]"
"""How the numbers along a side become the rows or the columns of a block."""
_LEAST = 16
"""Shortest side of a block that `tl.dot` takes."""


class TileAxes:
    """Axes by their roles, with the variables that number them in the source."""

    def __init__(
        self, sizes: Sequence[int], roles: Sequence[str], blocks: Mapping[str, int], views: Mapping[str, str]
    ) -> None:
        """Give every axis its variable.

        Args:
            sizes: of the axes, outermost first.
            roles: of each axis: `batch`, or the name of the block's side that it belongs to.
            blocks: wanted sizes of the block by side; they become powers of two no longer than needed.
            views: by side, how its numbers are laid out in a block, where the variable does not say so itself.
        """
        self._roles = tuple(roles)
        self.numbers = {
            role: Numbering(role, tuple(size for size, at in zip(sizes, roles, strict=True) if at == role))
            for role in ("batch", *blocks)
        }
        self.counts = {role: math.prod(numbers.sizes) for role, numbers in self.numbers.items()}
        self.blocks = {
            side: max(_LEAST, min(next_power_of_two(wanted), next_power_of_two(self.counts[side])))
            for side, wanted in blocks.items()
        }
        self._views = views
        waiting = {role: iter(numbers.axes) for role, numbers in self.numbers.items()}
        self._variables = tuple(f"{next(waiting[role])}{self._views.get(role, '')}" for role in roles)

    def split(self, role: str) -> list[str]:
        """Return the statements that make the variables of a role's axes from the one that numbers all."""
        return self.numbers[role].split()

    def bound(self, side: str) -> str:
        """Return the condition that a block's side lies within the tensors; empty if it always does."""
        return f"({self._viewed(side)} < {side.upper()})" if self.counts[side] % self.blocks[side] else ""

    def block(self, access: Access, *sides: str) -> tuple[str, str]:
        """Return offset and mask of the block of elements that spreads over `sides`, also where no axis does."""
        parts = [place(access, self._variables)]
        parts += [f"{self._viewed(side)} * 0" for side in sides if not self._depends(access, side)]
        return " + ".join(filter(None, parts)), self.mask(*sides)

    def element(self, access: Access) -> tuple[str, str]:
        """Return offset and mask of elements that spread only over the sides that they depend on."""
        return place(access, self._variables), self.mask(*(side for side in self.blocks if self._depends(access, side)))

    def mask(self, *sides: str) -> str:
        """Return the condition that all of some sides lie within the tensors; empty if they always do."""
        return " & ".join(filter(None, map(self.bound, sides)))

    def _viewed(self, side: str) -> str:
        return f"{side}{self._views.get(side, '')}"

    def _depends(self, access: Access, side: str) -> bool:
        return any(stride for stride, role in zip(access.strides, self._roles, strict=False) if role == side)
