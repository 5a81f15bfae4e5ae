"""Before each timed call on a GPU: the blocking kernel, the L2 flush, and looks for hidden work.

The blocking kernel keeps the GPU busy while a call is launched, so that launches are not in the times. It belongs to
the judge: a GPU runs one process at a time, so the candidate's launches wait with its first event. It lasts for a time
of the GPU's timer, since L2 flushes alone vary by 2 %, which is 30 us in the judge's clock.

A GPU takes turns of about 2 ms between processes (H200). Blocking must end before a turn does: calls of 1.8 ms behind
1.5 ms ended as on an idle GPU, those behind 2 to 6 ms took 0.4 to 0.5 ms longer by the judge's clock. So blocking for
6 ms finds short calls that wait for the GPU inside (to read a length): they begin on an idle GPU, where nothing can be
hidden. Long calls begin behind the longest blocking unless that makes them longer: processes agree within 0.3 % behind
it, and within 5 % on an idle GPU (1.9 and 3.4 ms, H200, docs/benchmarks/gpu_clocks.json).

A stopped process launches nothing, but kernels that it launched before go on: they could solve new inputs early, or
slow the reference down. So between some calls the judge holds the GPU for longer than a turn, and looks if it had all
of it. Work queued behind a value in memory (`cuStreamWaitValue32`) takes no turn until the value is there: therefore
the candidate's inputs are changed first, which such work cannot tell from the next inputs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from evaluators.hardware.vendors.nvidia.driver import Context, Hold
from messages.tasks import Measure

_FACTOR = 4
"""An L2 flush writes this many times the L2 cache: no line of it is left."""
IDLE = 0
"""The call begins when the GPU is idle again, after an L2 flush."""
_COVERS_US = (400, 800, 1500)
"""That launches are hidden behind."""
_PROBE_US = 6000
"""Several turns."""
_LOOK_NS, _FIRST_LOOKS = 3_000_000, 8
"""Longer than a turn: a process with work has the next one. An idle desktop's GPU draws once in this many."""
_QUEUED_NS = 500_000
"""While some small things are queued; together with them it is over long before a turn is."""
_SWEEPS = 16
_TRIES, _FEW_TRIES = 4, 2
_NO_SLOWER, _NO_SLOWER_NS = 1.03, 500
_ROOM = 4.0
"""Times what a call takes on an idle GPU, which is at least what launching does. A host may launch at a third of its
speed a second later: behind 400 us one kernel of TriMul was read as 254 to 635 us in a process that had taken 300 on an
idle GPU, and another as 484 to 1561 (H200, 2026-11-22)."""
_TURN_NS = 1_500_000
"""Longer calls may be interrupted behind several turns."""
_LONG_NS = 20_000_000
"""In calls of this length launches hardly count: of TriMul in 3.4 ms they are 1 to 4 %."""
_VERY_LONG_NS = 100_000_000
"""A call of this length takes long the next time, too."""
_WAITED_NS = 1_000_000
"""A call that waits for the GPU waits for 4 ms of 6 (H200; its turn comes after 1 or 2)."""


class Cover:
    """Blocks the first visible GPU, and flushes its L2 cache."""

    def __init__(self, measure: Measure) -> None:
        self._context = Context()
        self._hold = Hold(self._context)
        self._hides = measure == "device"
        self.levels = (IDLE, *_COVERS_US) if self._hides else (IDLE,)
        """Lengths of covers before a call, in us."""
        self._memory = torch.empty(_FACTOR * self._context.l2_bytes, dtype=torch.uint8, device="cuda:0")
        self._sweep_ns = min(self._time_sweeps() for _ in range(_TRIES)) // _SWEEPS
        self.is_alone = is_alone(self.longest_gap_ns, _FIRST_LOOKS)
        """True if nobody else used the GPU when this was made, before any candidate came."""

    def _time_sweeps(self) -> int:
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        for _ in range(_SWEEPS):
            self._memory.zero_()
        torch.cuda.synchronize()
        return time.perf_counter_ns() - begun

    def longest_gap_ns(self, first: Callable[[], None]) -> int:
        """Hold the GPU for longer than a turn. Returns for how long at most it was another process's meanwhile."""
        torch.cuda.synchronize()
        self._hold.begin(_QUEUED_NS)
        first()
        self._hold.begin(_LOOK_NS)
        return self._hold.longest_gap_ns()

    def over(self, cover_us: int) -> Callable[[], None]:
        """Return what is to be done right before a call is asked for."""
        return lambda: self._begin(cover_us)

    def _begin(self, cover_us: int) -> None:
        self._context.forget_persisting_l2()
        if cover_us != IDLE:
            self._hold.begin(max(0, 1000 * cover_us - self._sweep_ns))
        self._memory.zero_()
        if cover_us == IDLE:
            torch.cuda.synchronize()

    def search(self) -> CoverSearch:
        """Return what finds the best for each call of one side."""
        return CoverSearch(hides=self._hides)


class CoverSearch:
    """Behind how long a cover calls of one side are best made, of one workload after the other."""

    def __init__(self, *, hides: bool = True) -> None:
        self.hides = hides
        self._tries = _TRIES
        """On the first workload; what takes a process long in its first calls is over then."""

    def best_for(self, span_ns: Callable[[int], int]) -> int:
        """Return behind how many us calls on a workload take least, or `IDLE`."""
        if not self.hides:
            return IDLE
        found = best_cover(span_ns, tries=self._tries)
        self._tries = _FEW_TRIES
        return found


def best_cover(span_ns: Callable[[int], int], *, tries: int = _TRIES) -> int:
    """Return how long a cover hides all launches of a side, in us, or `IDLE`; see `CoverSearch.best_for`.

    Short calls are made behind several turns first: what waits for the GPU in its midst takes some milliseconds longer
    behind those than on an idle GPU. Then behind the others, from the shortest on that leaves room, until one turns out
    to hide as much. How long launching takes is seen on an idle GPU, where it is no more than what a call takes. It may
    be much less, but then a cover that is too long costs a millisecond, and nothing else.
    """
    idle_ns = [span_ns(IDLE)]
    if idle_ns[0] > _VERY_LONG_NS:
        return IDLE
    idle_ns += [span_ns(IDLE) for _ in range(1, tries)]
    if min(idle_ns) > _LONG_NS:
        return IDLE
    *covers_us, longest_us = _COVERS_US
    if min(idle_ns) > _TURN_NS:
        is_kept_waiting = median(span_ns(longest_us) for _ in range(tries)) > _at_most(median(idle_ns))
        return IDLE if is_kept_waiting else longest_us
    hidden_ns = [span_ns(_PROBE_US) for _ in range(tries)]
    if min(hidden_ns) > min(idle_ns) + _WAITED_NS:
        return IDLE
    least_ns = median(hidden_ns)
    for cover_us in covers_us:
        if 1000 * cover_us < _ROOM * min(idle_ns):
            continue
        found_ns = [span_ns(cover_us) for _ in range(_TRIES)]
        least_ns = min(least_ns, median(found_ns))
        # One call in which a launch came too late is enough: it would be one of many.
        if max(found_ns) <= _at_most(least_ns):
            return cover_us
    return longest_us


def may_wait(cover_us: int, span_ns: float) -> bool:
    """Return True if calls may be such that wait for the GPU in their midst."""
    return cover_us == IDLE or span_ns > _TURN_NS


def told(cover_us: int) -> str:
    """Say how calls begin."""
    return "on an idle GPU" if cover_us == IDLE else f"behind {cover_us / 1000:.1f} ms of the judge's work"


def _at_most(span_ns: float) -> float:
    return span_ns * _NO_SLOWER + _NO_SLOWER_NS


_SHARE = 0.25
"""Of the times between two calls; all, once something was seen. Who works in half of them is seen in 98 of 100
screenings of 16 pairs, and in every confirmation of 40."""
_GAP_NS = 100_000
"""Alone, a blocking kernel on an H200 takes at most 4 us more than requested (of 1,200); a turn of another process
costs 200 to change."""
_MOST, _MOST_SHARE = 1, 0.2
"""Looks, and which part of them, in which something is seen that need not be the candidate's."""
_STIRRED_TENSORS, _STIRRED_BYTES = 8, 16 << 20
"""Number, and size of each, drawn by chance: this must not take long."""
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the size of an element: some dtypes cannot be rolled."""


class Looks:
    """Observations between the calls of one candidate."""

    def __init__(self, longest_gap_ns: Callable[[Callable[[], None]], int], *, is_alone: bool = True) -> None:
        """Begin.

        Args:
            longest_gap_ns: blocks the GPU for a while, queues the given work first, and returns the longest time
                for which another process had the GPU.
            is_alone: false: others used the GPU before any candidate came, so nothing follows from what is seen.
        """
        self._longest_gap_ns = longest_gap_ns
        self._is_alone = is_alone
        self._chance = random.SystemRandom()
        self._count = 0
        self._gaps_ns: list[int] = []

    def look(self, stir: Callable[[], None]) -> None:
        """Look, or not, by chance. The candidate is stopped, and was since its last call."""
        if not self._is_alone or (not self._gaps_ns and self._chance.random() >= _SHARE):
            return
        self._count += 1
        if (gap_ns := self._longest_gap_ns(stir)) > _GAP_NS:
            self._gaps_ns.append(gap_ns)

    def complaint(self) -> str:
        """Report GPU work of other processes while the candidate is stopped; empty: not enough to matter."""
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
    """Return True if nobody else uses the GPU, by several looks while no candidate is there; one sight is ignored."""
    return sum(longest_gap_ns(lambda: None) > _GAP_NS for _ in range(looks)) <= _MOST


def stir(tensors: Sequence[torch.Tensor]) -> None:
    """Queue what makes of the contents of tensors something like them: elements are where others of them were."""
    chance = random.SystemRandom()
    for tensor in chance.sample(tensors, min(_STIRRED_TENSORS, len(tensors))):
        content = tensor.view(-1).view(_AS_INTEGERS[tensor.element_size()])
        size = min(content.numel(), _STIRRED_BYTES // tensor.element_size())
        if size > 1:
            begin = chance.randrange(content.numel() - size + 1)
            part = content[begin : begin + size]
            # By a kernel: a copy may be done beside the queue, which is empty then.
            torch.bitwise_or(part.roll(chance.randrange(1, size)), 0, out=part)
