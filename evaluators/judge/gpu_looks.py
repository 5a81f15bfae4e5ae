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

_SHARE = 0.25
"""Of the times between two calls; all, once something was seen. Who works in half of them is seen in 98 of 100
screenings of 16 pairs, and in every confirmation of 40."""
_GAP_NS = 100_000
"""Alone, a hold of an H200 takes 4 us more than it was told at most (of 1,200); a turn of another process costs 200 to
change."""
_MOST, _MOST_SHARE = 1, 0.2
"""Looks, and which part of them, in which something is seen that need not be the candidate's."""
_STIRRED_TENSORS, _STIRRED_BYTES = 8, 16 << 20
"""So many, and of each so much, by chance: to queue and do that must not take long."""
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the size of an element: some dtypes cannot be rolled."""


class Looks:
    """What was seen between the calls of one candidate."""

    def __init__(self, longest_gap_ns: Callable[[Callable[[], None]], int], *, is_alone: bool = True) -> None:
        """Begin.

        Args:
            longest_gap_ns: holds the GPU for a while, queues first what it is told, and returns for how long at most
                the GPU was another process's meanwhile.
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
            stir: queues that other data are written where it has its inputs.
        """
        if not self._is_alone or (not self._gaps_ns and self._chance.random() >= _SHARE):
            return
        self._count += 1
        if (gap_ns := self._longest_gap_ns(stir)) > _GAP_NS:
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


def is_alone(longest_gap_ns: Callable[[Callable[[], None]], int], looks: int) -> bool:
    """Say whether nobody else uses the GPU, by so many looks while no candidate is there; one sight is no matter."""
    return sum(longest_gap_ns(lambda: None) > _GAP_NS for _ in range(looks)) <= _MOST


def stir(tensors: Sequence[torch.Tensor]) -> None:
    """Queue what makes of the contents of tensors something like them: elements are where others of them were.

    Args:
        tensors: dense ones. Of many, or of large ones, some by chance.
    """
    chance = random.SystemRandom()
    for tensor in chance.sample(tensors, min(_STIRRED_TENSORS, len(tensors))):
        content = tensor.view(-1).view(_AS_INTEGERS[tensor.element_size()])
        size = min(content.numel(), _STIRRED_BYTES // tensor.element_size())
        if size > 1:
            begin = chance.randrange(content.numel() - size + 1)
            part = content[begin : begin + size]
            # By a kernel: a copy may be done beside the queue, which is empty then.
            torch.bitwise_or(part.roll(chance.randrange(1, size)), 0, out=part)
