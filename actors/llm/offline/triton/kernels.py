"""One kernel and its launch, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from actors.llm.offline.graph import TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.triton.expressions import identifier, pointer


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A `@triton.jit` function."""

    name: str
    tensors: tuple[TensorInfo, ...]
    """Whose pointers it gets, in order."""
    constants: Mapping[str, int]
    """Its `tl.constexpr` arguments and their values."""
    body: tuple[str, ...]
    grid: tuple[int, ...]
    """Programs along each axis."""

    def definition(self) -> str:
        """Return the function."""
        arguments = [pointer(tensor) for tensor in self.tensors]
        arguments += [f"{name}: tl.constexpr" for name in self.constants]
        return "\n".join(["@triton.jit", f"def {self.name}({', '.join(arguments)}):", *indented(self.body)])

    def launch(self, plan: Plan) -> str:
        """Return the statement that starts it on the tensors."""
        arguments = [identifier(tensor) for tensor in self.tensors]
        arguments += [f"{name}={value}" for name, value in self.constants.items()]
        arguments += [f"num_warps={plan.warps}"] if plan.warps else []
        arguments += [f"num_stages={plan.stages}"] if plan.stages else []
        grid = ", ".join(map(str, self.grid))
        return f"{self.name}[({grid}{',' if len(self.grid) == 1 else ''})]({', '.join(arguments)})"


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" if line else line for line in lines]


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below `number`: blocks have no other sizes."""
    return 1 << max(0, number - 1).bit_length()
