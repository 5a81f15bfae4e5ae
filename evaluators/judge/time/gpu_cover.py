"""Before each timed call on a GPU: the blocking kernel, the L2 flush, and looks for hidden work.

The blocking kernel keeps the GPU busy while a call is launched, so that launches are not in the times. It belongs to
the judge: a GPU runs one process at a time, so the candidate's launches wait with its first event. It lasts for a time
of the GPU's timer, since L2 flushes alone vary by 2 %, which is 30 us in the judge's clock.

A GPU switches between processes about every 2 ms (H200). Blocking must end before a turn does: calls of 1.8 ms
behind 1.5 ms ended as on an idle GPU, those behind 2 to 6 ms took 0.4 to 0.5 ms longer by the judge's clock. So
blocking for 6 ms finds short calls that wait for the GPU inside (to read a length): they begin on an idle GPU, where
nothing can be hidden. Long calls begin behind the longest blocking unless that makes them longer: processes agree
within 0.3 % behind it, and within 5 % on an idle GPU (1.9 and 3.4 ms, H200, docs/benchmarks/gpu_clocks.json).

A stopped process launches nothing, but kernels that it launched before continue: they could solve new inputs early, or
slow the reference down. So between some calls the judge holds the GPU for longer than a turn, and checks whether it had
all of it. Work queued behind a value in memory (`cuStreamWaitValue32`) takes no turn until the value is there, so the
candidate's inputs are changed first, which such work cannot tell from the next inputs.
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
"""An L2 flush writes this many times the size of the L2 cache, so that no line of it is left."""
IDLE = 0
"""The call begins when the GPU is idle again, after an L2 flush."""
_COVERS_US = (400, 800, 1500)
"""Covers behind which launches are hidden."""
_PROBE_US = 6000
"""A cover of several turns."""
_LOOK_NS, _FIRST_LOOKS = 3_000_000, 8
"""Longer than a turn, so that another process with work gets the next one. An idle desktop's GPU draws once in this
many."""
_QUEUED_NS = 500_000
"""Time in which some small commands are queued; together with them it is over long before a turn is."""
_SWEEPS = 16
_TRIES, _FEW_TRIES = 4, 2
_NO_SLOWER, _NO_SLOWER_NS = 1.03, 500
_ROOM = 4.0
"""Least cover as a multiple of a call's time on an idle GPU, which is at least the time of its launches. A host may
launch at a third of its speed a second later: behind 400 us one kernel of TriMul was measured as 254 to 635 us in a
process that had taken 300 on an idle GPU, and another as 484 to 1561 (H200, 2026-11-22)."""
_TURN_NS = 1_500_000
"""Longer calls may be interrupted behind several turns."""
_LONG_NS = 20_000_000
"""In calls of this length launches hardly matter: of TriMul in 3.4 ms they are 1 to 4 %."""
_VERY_LONG_NS = 100_000_000
"""A call of this length is taken to be as long the next time."""
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
        """True if no other process used the GPU when this was made, before any candidate."""

    def _time_sweeps(self) -> int:
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        for _ in range(_SWEEPS):
            self._memory.zero_()
        torch.cuda.synchronize()
        return time.perf_counter_ns() - begun

    def longest_gap_ns(self, first: Callable[[], None]) -> int:
        """Hold the GPU for longer than a turn. Returns the longest time that another process had it meanwhile."""
        torch.cuda.synchronize()
        self._hold.begin(_QUEUED_NS)
        first()
        self._hold.begin(_LOOK_NS)
        return self._hold.longest_gap_ns()

    def over(self, cover_us: int) -> Callable[[], None]:
        """Return a function to call right before a call is requested."""
        return lambda: self._begin(cover_us)

    def _begin(self, cover_us: int) -> None:
        self._context.forget_persisting_l2()
        if cover_us != IDLE:
            self._hold.begin(max(0, 1000 * cover_us - self._sweep_ns))
        self._memory.zero_()
        if cover_us == IDLE:
            torch.cuda.synchronize()

    def search(self) -> CoverSearch:
        """Return a search for the best cover of each call of one side."""
        return CoverSearch(hides=self._hides)


class CoverSearch:
    """Finds the best cover for calls of one side, for one workload after the other."""

    def __init__(self, *, hides: bool = True) -> None:
        self.hides = hides
        self._tries = _TRIES
        """Tries on the first workload, after which a process's slow first calls are over."""

    def best_for(self, span_ns: Callable[[int], int]) -> int:
        """Return the cover in us behind which calls on a workload take least time, or `IDLE`."""
        if not self.hides:
            return IDLE
        found = best_cover(span_ns, tries=self._tries)
        self._tries = _FEW_TRIES
        return found


def best_cover(span_ns: Callable[[int], int], *, tries: int = _TRIES) -> int:
    """Return the cover that hides all launches of a side, in us, or `IDLE`; see `CoverSearch.best_for`.

    Short calls are first made behind several turns: a call that waits for the GPU inside takes some milliseconds longer
    there than on an idle GPU. Then behind the others, from the shortest with enough room on, until one hides as much.
    The time of launches is bounded by a call on an idle GPU. It may be much less, but then a cover that is too long
    costs a millisecond, and nothing else.
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
        # One call with a late launch suffices, since there would be more of them.
        if max(found_ns) <= _at_most(least_ns):
            return cover_us
    return longest_us


def may_wait(cover_us: int, span_ns: float) -> bool:
    """Return True if calls may wait for the GPU inside."""
    return cover_us == IDLE or span_ns > _TURN_NS


def told(cover_us: int) -> str:
    """Return how calls begin, in words."""
    return "on an idle GPU" if cover_us == IDLE else f"behind {cover_us / 1000:.1f} ms of the judge's work"


def _at_most(span_ns: float) -> float:
    return span_ns * _NO_SLOWER + _NO_SLOWER_NS


_SHARE = 0.25
"""Share of the pauses between two calls in which the judge looks; all of them once something was seen. Work in half of
the pauses is seen in 98 of 100 screenings of 16 pairs, and in every confirmation of 40."""
_GAP_NS = 100_000
"""Alone, a blocking kernel on an H200 takes at most 4 us more than requested (of 1,200); a switch to another process
costs 200."""
_MOST, _MOST_SHARE = 1, 0.2
"""Number and share of looks with other work that need not be the candidate's."""
_STIRRED_TENSORS, _STIRRED_BYTES = 8, 16 << 20
"""Number and size of tensors to change, drawn at random: this must not take long."""
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by the size of an element, since some dtypes cannot be rolled."""


class Looks:
    """Observations between the calls of one candidate."""

    def __init__(self, longest_gap_ns: Callable[[Callable[[], None]], int], *, is_alone: bool = True) -> None:
        """Begin.

        Args:
            longest_gap_ns: blocks the GPU for a while, queues the given work first, and returns the longest time for
                which another process had the GPU.
            is_alone: false: others used the GPU before any candidate, so looks prove nothing.
        """
        self._longest_gap_ns = longest_gap_ns
        self._is_alone = is_alone
        self._chance = random.SystemRandom()
        self._count = 0
        self._gaps_ns: list[int] = []

    def look(self, stir: Callable[[], None]) -> None:
        """Look, or not, at random. The candidate is stopped, and was since its last call."""
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
        """Return the observations in words."""
        if not self._is_alone:
            return "somebody else uses the GPU: whether it works for a stopped candidate is not looked at"
        return f"looked {self._count} times whether the GPU works for the candidate while its process is stopped"


def is_alone(longest_gap_ns: Callable[[Callable[[], None]], int], looks: int) -> bool:
    """Return True if no other process uses the GPU, by several looks without a candidate; a single sight is ignored."""
    return sum(longest_gap_ns(lambda: None) > _GAP_NS for _ in range(looks)) <= _MOST


def stir(tensors: Sequence[torch.Tensor]) -> None:
    """Queue a change of the tensors' contents that keeps them plausible: their elements move on by some places."""
    chance = random.SystemRandom()
    for tensor in chance.sample(tensors, min(_STIRRED_TENSORS, len(tensors))):
        content = tensor.view(-1).view(_AS_INTEGERS[tensor.element_size()])
        size = min(content.numel(), _STIRRED_BYTES // tensor.element_size())
        if size > 1:
            begin = chance.randrange(content.numel() - size + 1)
            part = content[begin : begin + size]
            # By a kernel, since a copy may run beside the queue, which is empty then.
            torch.bitwise_or(part.roll(chance.randrange(1, size)), 0, out=part)
