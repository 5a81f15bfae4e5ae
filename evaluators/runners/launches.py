"""Counts the kernels that a Triton program launches in this process. Advice: a program that wants to can fool it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


class Launches:
    """Number of launches since `forget`."""

    def __init__(self) -> None:
        """Watch all kernels of this process, interpreted or compiled."""
        self.count = 0
        for kind in (InterpretedFunction, JITFunction):
            kind.run = self._counted(kind.run)

    def forget(self) -> None:
        """Begin again."""
        self.count = 0

    def _counted(self, run: Callable[..., object]) -> Callable[..., object]:
        def counted(kernel: _Kernel, *args: object, **options: object) -> object:
            self.count += not options.get("warmup")
            return run(kernel, *args, **options)

        return counted


class _Kernel(Protocol):
    """The class of `run`."""
