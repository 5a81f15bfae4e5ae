"""Looks whether a GPU works for a candidate whose process is stopped.

A stopped process launches nothing, but what it launched before goes on. A kernel that waits for new inputs would solve
them before they are asked for, one that merely lasts would slow the reference down. That the candidate's process waits
for the GPU at the end of each call does not keep it from that: another of its threads can launch behind that wait until
all of them are stopped. So now and then, between two calls, the judge holds the GPU for longer than a turn, and
looks whether it had it all the time, since a GPU takes turns between processes that have work for it.

Work may also be queued behind a wait for a value in memory (`cuStreamWaitValue32`), and takes no turn until it is
there. Therefore the candidate's inputs are stirred first: who waits for new ones cannot tell these from the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

_SHARE = 0.5
"""Of the times between two calls: who works in half of them is found nearly always. All, once something was seen."""
_GAP_NS = 20_000
"""Alone, what holds a GPU of this kind is never kept from it for more than 1 us; changing processes takes longer."""
_MOST, _MOST_SHARE = 1, 0.2
"""Looks, and which part of them, in which something is seen that need not be the candidate's."""
_STIRRED_BYTES = 64 << 20
"""At a time: what is stirred lies there twice meanwhile."""


class Looks:
    """What was seen between the calls of one candidate."""

    def __init__(self, longest_gap_ns: Callable[[], int], *, is_alone: bool = True) -> None:
        """Begin.

        Args:
            longest_gap_ns: holds the GPU for a while; returns for how long at most it was another process's meanwhile.
            is_alone: false: others used the GPU before any candidate came, so nothing follows from what is seen.
        """
        self._longest_gap_ns = longest_gap_ns
        self._is_alone = is_alone
        self._chance = random.SystemRandom()
        self._count = 0
        self._gaps_ns: list[int] = []

    def look(self, stir: Callable[[], None]) -> None:
        """Look, or not, by chance. The candidate is stopped, and was since its last call.

        Args:
            stir: writes other data where it has its inputs.
        """
        if not self._is_alone or (not self._gaps_ns and self._chance.random() >= _SHARE):
            return
        stir()
        self._count += 1
        if (gap_ns := self._longest_gap_ns()) > _GAP_NS:
            self._gaps_ns.append(gap_ns)

    def complaint(self) -> str:
        """Say that the GPU works for somebody while the candidate is stopped; empty: not so that it matters."""
        seen = len(self._gaps_ns)
        if seen <= _MOST or seen < _MOST_SHARE * self._count:
            return ""
        return (
            f"while its process was stopped the GPU worked for another one than the judge, in {seen} of {self._count} "
            f"looks, for up to {max(self._gaps_ns) / 1000:.0f} us: what it launches goes on behind its calls, or "
            "somebody else uses the GPU"
        )

    def note(self) -> str:
        """Say what was looked at."""
        if not self._is_alone:
            return "somebody else uses the GPU: whether it works for a stopped candidate is not looked at"
        return f"looked {self._count} times whether the GPU works for the candidate while its process is stopped"


def is_alone(longest_gap_ns: Callable[[], int], looks: int) -> bool:
    """Say whether nobody else uses the GPU, by so many looks while no candidate is there."""
    return all(longest_gap_ns() <= _GAP_NS for _ in range(looks))


def stir(tensors: Sequence[torch.Tensor]) -> None:
    """Write what is like the contents of tensors, and is not: every element where another one was.

    Args:
        tensors: dense ones.
    """
    chance = random.SystemRandom()
    for tensor in tensors:
        # By bytes: some dtypes cannot be rolled.
        item, content = tensor.element_size(), tensor.view(-1).view(torch.uint8)
        size = max(2, _STIRRED_BYTES // item) * item
        for begin in range(0, content.numel() - item, size):
            part = content[begin : begin + size]
            part.copy_(part.roll(item * chance.randrange(1, part.numel() // item)))
