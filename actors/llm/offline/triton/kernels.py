"""One kernel and its launch, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.expressions import pointer

_PER_LINE = 4
"""Arguments of a definition."""
_ELEMENTS_PER_WARP = 1024
"""Loads of eight 16-byte vectors per thread are under way at once, and a few such blocks fit into its registers."""
_MOST_WARPS = 16


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A `@triton.jit` function."""

    name: str
    tensors: tuple[str, ...]
    """Names of those whose pointers it gets, in order."""
    constants: Mapping[str, int]
    """Its `tl.constexpr` arguments and their values."""
    body: tuple[str, ...]
    grid: tuple[int, ...]
    """Programs along each axis."""
    options: Mapping[str, int]
    """Of the launch: warps, stages."""

    def definition(self) -> str:
        """Return the function."""
        arguments = [pointer(tensor) for tensor in self.tensors]
        arguments += [f"{name}: tl.constexpr" for name in self.constants]
        lines = [f"{', '.join(arguments[at : at + _PER_LINE])}," for at in range(0, len(arguments), _PER_LINE)]
        head = [f"def {self.name}(", *indented(lines), "):"]
        return "\n".join(["@triton.jit", *head, *indented(self.body)])

    def launch(self) -> str:
        """Return the statement that starts it on the tensors."""
        arguments = [*self.tensors, *(f"{name}={value}" for name, value in {**self.constants, **self.options}.items())]
        grid = ", ".join(map(str, self.grid))
        return f"{self.name}[({grid}{',' if len(self.grid) == 1 else ''})]({', '.join(arguments)})"


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" if line else line for line in lines]


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below `number`: blocks have no other sizes."""
    return 1 << max(0, number - 1).bit_length()


def launch_options(plan: Plan, elements: int = 0) -> dict[str, int]:
    """Return what a plan says about a launch, and for a block of so many elements the warps that it does not say."""
    warps = plan.warps or (usual_warps(elements) if elements else 0)
    return {name: value for name, value in (("num_warps", warps), ("num_stages", plan.stages)) if value}


def usual_warps(elements: int) -> int:
    """Return the warps for a block that is gone through element by element: 32 elements for each thread."""
    return min(_MOST_WARPS, max(1, elements // _ELEMENTS_PER_WARP))


def used(tensors: Iterable[str]) -> tuple[str, ...]:
    """Return names without repetition, in the order of their first use."""
    return tuple(dict.fromkeys(tensors))
