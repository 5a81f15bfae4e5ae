"""A look at outputs in the moment of the answer, at places that nobody knew before.

A side is stopped some tenths of a millisecond after its answer, and its outputs are compared then. A thread that goes
on meanwhile would finish work whose time is already taken. So a few elements, drawn for this call, are kept as they are
when the answer is there: before the stop, just behind the clock. Whatever differs later was not finished. A candidate
that leaves one element in a hundred for later gets through one call in thirteen, and there are dozens.

Not covered: work whose result is no output (clearing what the next call needs), and what runs beside the few
microseconds of an empty call.
"""

from __future__ import annotations

import os

import torch

from evaluators.judge.problem import Tensors

_PLACES = 256
"""Of all outputs together: what is looked at must be there in a few microseconds."""
_LEAST_PLACES = 16
"""Of each output."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Glimpse:
    """Some elements of outputs as they were at a moment."""

    def __init__(self) -> None:
        """Look at no place yet."""
        self._bits: list[torch.Tensor] = []
        self._places: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []

    def draw(self, outputs: Tensors) -> None:
        """Choose the places of the next look; takes time.

        Args:
            outputs: dense; somebody else writes to them.
        """
        self._bits = [output.view(-1).view(_INTEGERS[output.element_size()]) for output in outputs]
        most = max(_LEAST_PLACES, _PLACES // max(1, len(self._bits)))
        self._places = [_drawn(bits.numel(), most) for bits in self._bits]
        self._kept = [torch.empty(len(places), dtype=bits.dtype) for bits, places in self._each()]

    def take(self) -> None:
        """Look now."""
        for (bits, places), kept in zip(self._each(), self._kept, strict=True):
            torch.index_select(bits, 0, places, out=kept)

    def changed(self) -> tuple[int, int]:
        """Return at how many of the places something else stands now, and at how many it was looked."""
        pairs = list(zip(self._each(), self._kept, strict=True))
        changed = sum(int((bits[places] != kept).sum()) for (bits, places), kept in pairs)
        return changed, sum(len(kept) for _, kept in pairs)

    def _each(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(self._bits, self._places, strict=True)) if self._places else []


def _drawn(count: int, most: int) -> torch.Tensor:
    """Return some indices below `count`; all of them if there are no more than `most`."""
    if count <= most:
        return torch.arange(count)
    # Of the system's entropy: what a problem does to torch's generator is no matter.
    return torch.frombuffer(bytearray(os.urandom(8 * most)), dtype=torch.int64).remainder(count)
