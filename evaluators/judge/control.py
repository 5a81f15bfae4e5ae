"""What the reference tells of the host, and of a candidate that disturbs it.

Once per judge the reference is timed against itself, as if it were a candidate: a ratio that is not 1 is the host's or
ours. The same calls are the reference's history. A reference that is slower beside a candidate than in its history, and
as quick as ever once the candidate is dead, was slowed down, most likely by it: its pairs give no credit. The slower
calls of what it then takes are the measure. It is no accusation: on a busy host somebody else may have done that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import quantiles

import msgspec

from evaluators.judge.stopwatch import Pair, Timing, TimingPolicy, time_pairs

SLOWED = 1.15
"""So much slower beside a candidate is more than chance."""
_POLICY = TimingPolicy(
    min_pairs=4, max_pairs=12, lease_s=1.0, stretched_lease_s=1.0, half_width=0.005, hopeless_speedup=0.0
)
_TRIES = 2
"""At finding the host fit: somebody else's second of work is no reason to time nothing."""
_WORTH_A_NOTE = math.log(1.02)
_UNFIT = math.log(1.10)
_CALLS_ALONE, _MOST_CALLS_ALONE, _ALONE_S = 5, 24, 1.0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One timed call."""

    net_ns: int
    disturbance: str = ""


class Control:
    """The reference against itself, and against its own past."""

    def __init__(self, time_reference: Callable[[], Sample]) -> None:
        """Prepare.

        Args:
            time_reference: times one call of the reference, with cold caches.
        """
        self._time_reference = time_reference
        self._timing: Timing | None = None
        self._history_us = math.inf

    def check(self) -> str:
        """Time the reference against itself, unless that went well before. Returns why nothing can be timed here."""
        said: list[str] = []
        while self._timing is None or _bias(self._timing) > _UNFIT:
            if len(said) == _TRIES:
                tries = ", then to ".join(said)
                return f"the reference against itself comes to {tries}: this host cannot be timed on now"
            self._timing = time_pairs(self._pair, _POLICY)
            self._remember(self._timing.reference_latency_us)
            said.append(f"{self._timing.speedup:.2f}x after {self._timing.pairs} pairs")
        return ""

    def slowed(self, during_us: float) -> str:
        """Say that the reference was slower beside a candidate than it is alone, if so. The candidate must be dead.

        What took caches or bandwidth from it, the candidate or somebody else who left at about the same time, cannot be
        told from here. Either way its pairs say nothing.

        Args:
            during_us: the reference's median beside it.
        """
        if during_us <= SLOWED * self._history_us:
            self._remember(during_us)
            return ""
        alone_us, slow_us = self._alone_us()
        if during_us <= SLOWED * slow_us:
            # The host has become slower: that is how it is from now on.
            self._history_us = alone_us
            return ""
        self._remember(alone_us)
        return (
            f"the reference took {during_us:.1f} us beside this candidate, but {alone_us:.1f} us afterwards, alone: "
            "this candidate slowed it down, or the host was busy meanwhile"
        )

    @property
    def bias(self) -> float:
        """Return by which share the reference against itself was off, where chance does not explain it; else 0."""
        if self._timing is None or self._timing.interval.low <= 1.0 <= self._timing.interval.high:
            return 0.0
        return _bias(self._timing)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result should say of it."""
        if self._timing is None:
            return ()
        timing = self._timing
        told = f"control: the reference against itself {timing.speedup:.3f}x after {timing.pairs} pairs"
        holds_one = timing.interval.low <= 1.0 <= timing.interval.high
        if _bias(timing) > _WORTH_A_NOTE and not holds_one:
            told += "; that is not 1: this host was disturbed"
        return (told,)

    def _pair(self, first: bool) -> Pair:
        one, other = self._time_reference(), self._time_reference()
        candidate, reference = (one, other) if first else (other, one)
        return Pair(
            candidate_ns=candidate.net_ns,
            reference_ns=reference.net_ns,
            disturbance=one.disturbance or other.disturbance,
        )

    def _alone_us(self) -> tuple[float, float]:
        """Return what the reference takes now: the median of some calls, and the slowest quarter's best."""
        until = time.monotonic() + _ALONE_S
        calls_ns: list[int] = []
        while len(calls_ns) < _CALLS_ALONE or (len(calls_ns) < _MOST_CALLS_ALONE and time.monotonic() < until):
            calls_ns.append(self._time_reference().net_ns)
        _, middle, slow = quantiles(calls_ns, n=4)
        return middle / 1000, slow / 1000

    def _remember(self, latency_us: float) -> None:
        self._history_us = min(self._history_us, latency_us)


def _bias(timing: Timing) -> float:
    return abs(math.log(timing.speedup))
