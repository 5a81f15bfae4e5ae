"""Two clocks for the same calls on a GPU: the events of the side's process, and the judge's own around them.

`gpu.py` says how the excess of the judge's clock over the events is believed. Times in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from evaluators.judge.candidate.side import Answer
from evaluators.judge.time.gpu_cover import IDLE
from evaluators.judge.time.sampling import BLOCK, block_means

_SLACKS = ((12_000, 0.03), (20_000, 0.04), (40_000, 0.06))
"""By how much the judge's clock may exceed a candidate's events more than those of an empty call, in ns and of the
candidate's time: noise. Of the lower quartiles, the medians and the upper quartiles: the lower ones miss a candidate
with work beside its events in some calls only, and a waiting process changes the upper ones."""
_FIRST_SLACK_NS, _FIRST_SLACK_SHARE = 48_000, 0.02
"""Tolerated increase for empty calls from before the candidate was loaded. Of the lower quartiles 50 us were seen on an
H200 with honest kernels."""
_MOST_ADDED, _ADDED_AT_ONCE = 0.2, 0.03
"""Of a call's time, what the judge's clock may say beyond that before a candidate is refused; it is added to its time.
Where that is more than the smaller share, and the GPU was not idle, pairs are run again first.

Of eight pairs the lower quartiles of honest calls are 5 to 15 us beyond those of empty ones (a module in Triton, H200;
standard deviation 10), in some processes 20 for as long as they live: four of forty evaluations were refused while no
more than 12 us were let through. Calls on an idle GPU keep the host at work, which comes back to its next instructions
with cold caches: up to 8 % (`eigh` of small matrices)."""

_USUAL_SHARE = 0.1
"""Of the candidate's time: more of it is not usual, however much a long reference exceeds its own."""


class Unloaded:
    """Empty calls of a process in which the candidate is not there yet; they hand no outputs over."""

    def __init__(self, take_ns: float) -> None:
        self._take_ns = take_ns
        self._around: dict[int, list[int]] = {}

    def add(self, cover_us: int, answer: Answer) -> None:
        """Note what the judge's clock says beyond the events of an empty call behind so long a cover."""
        self._around.setdefault(cover_us, []).append(answer.elapsed_ns - answer.span_ns)

    def around_ns(self, cover_us: int) -> list[float]:
        """Return the quartiles of that, the judge's copy taken off."""
        return [around_ns - self._take_ns for around_ns in _quartiles(self._around[cover_us])]


class Seen:
    """Measurements of one candidate on one workload."""

    def __init__(self, unloaded: Unloaded, copy_ns: float, take_ns: float, *, reference_cover_us: int = IDLE) -> None:
        self._unloaded, self._copy_ns, self._take_ns = unloaded, copy_ns, take_ns
        self._is_reference_idle = reference_cover_us == IDLE
        self.candidate: list[int] = []
        self.reference: list[int] = []
        self.second: list[int] = []
        """Of the second baseline."""
        self._around: dict[str, list[int]] = {}
        self.cover_us = IDLE
        """Length of the cover before its calls, in us."""
        self.is_entered = False
        """True if that was found out."""
        self.repeats = 0
        """Times that all pairs were run again, because its events were doubted."""
        self._worst_share = 0.0
        """The largest `added_share` of the pairs that were run before."""

    def add(self, what: str, answer: Answer) -> None:
        """Note what the judge's clock says beyond the events of a call, or of an empty one."""
        self._around.setdefault(what, []).append(answer.elapsed_ns - answer.span_ns)

    def repeat(self, *, longest_us: int) -> None:
        """Forget all pairs: others take their place."""
        self._worst_share = max(self._worst_share, self.added_share)
        if not self._is_idle:
            self.cover_us = longest_us
        self.repeats += 1
        for times in (self.candidate, self.reference, self.second, self._around):
            times.clear()

    def excess_ns(self, what: str, empty: str) -> list[float]:
        """Return by how much calls exceed their events more than empty ones do, by the judge's clock: their quartiles.

        The lower ones say most, since whatever keeps a process waiting only adds.
        """
        quartiles = zip(_quartiles(self._around[what]), _quartiles(self._around[empty]), strict=True)
        return [around_ns - empty_ns for around_ns, empty_ns in quartiles]

    @property
    def beyond_ns(self) -> list[float]:
        """By how much the candidate's calls exceed their events more than empty ones do, by the judge's clock."""
        return self.excess_ns("call", "empty call")

    @property
    def beyond_first_ns(self) -> list[float]:
        """As `beyond_ns`, but compared with empty calls from before the candidate was loaded."""
        quartiles = zip(_quartiles(self._around["call"]), self._first_ns, strict=True)
        return [around_ns - first_ns for around_ns, first_ns in quartiles]

    @property
    def _first_ns(self) -> list[float]:
        """Times of empty calls from before the candidate was loaded, adjusted to this workload."""
        return [ns + self._take_ns + self._copy_ns for ns in self._unloaded.around_ns(self.cover_us)]

    @property
    def unbelieved_ns(self) -> float:
        """By how much any of those is more than noise, of calls or of the means of blocks; below 0: none is.

        Where both begin on an idle GPU the reference's calls say what is to be expected besides, if that is little.
        """
        span_ns, both_idle = median(self.candidate), self._is_idle and self._is_reference_idle
        usual_ns = max(0.0, self.excess_ns("reference", "empty reference")[0]) if both_idle else 0.0
        usual_ns = min(usual_ns, _USUAL_SHARE * span_ns)
        calls, empty = self._around["call"], self._around["empty call"]
        over_ns = self._over_ns(calls, empty, _SLACKS, span_ns)
        if len(calls) >= 2 * BLOCK:  # of one block there are no quartiles
            # Blocks count: of a call in each, half of the hidden time. One that waited makes a mean of noise,
            # so only the lower ones say anything.
            over_ns = max(over_ns, self._over_ns(block_means(calls), block_means(empty), _SLACKS[:1], span_ns))
        return over_ns - usual_ns

    def _over_ns(
        self, calls: Sequence[float], empty: Sequence[float], slacks: Sequence[tuple[int, float]], span_ns: float
    ) -> float:
        """Return by how much any of the first quartiles of calls is more beyond that of empty ones than noise is."""
        found = zip(_quartiles(calls), _quartiles(empty), self._first_ns, slacks, strict=False)
        return max(
            max(
                call_ns - empty_ns - max(slack_ns, share * span_ns),
                call_ns - first_ns - max(slack_ns + _FIRST_SLACK_NS, (share + _FIRST_SLACK_SHARE) * span_ns),
            )
            for call_ns, empty_ns, first_ns, (slack_ns, share) in found
        )

    @property
    def is_doubtful(self) -> bool:
        """True if that is more than may be added to its time as it is."""
        return self.added_share > (_MOST_ADDED if self._is_idle else _ADDED_AT_ONCE)

    @property
    def is_refused(self) -> bool:
        """True if it is doubtful, and more than may be added at all is or was unbelieved, in any pairs that were run.

        So not the best of three counts: only pairs that are not doubtful clear a candidate of those before.
        """
        return self.is_doubtful and max(self.added_share, self._worst_share) > _MOST_ADDED

    def complaint(self, latency_us: float) -> str:
        """Describe the doubt about a candidate, given the latency by its events."""
        beyond, first = (
            ", ".join(f"{each / 1000:.1f}" for each in quartiles)
            for quartiles in (self.beyond_ns, self.beyond_first_ns)
        )
        return (
            f"its events say {latency_us:.1f} us, but by the judge's clock calls take longer than that, by {beyond} us "
            f"(quartiles) more than empty ones do and by {first} us more than those before it was loaded: work goes on "
            "beside or after them"
        )

    @property
    def added_share(self) -> float:
        """Share by which the reported time exceeds the candidate's events."""
        return max(0.0, self.unbelieved_ns) / max(median(self.candidate), 1)

    @property
    def _is_idle(self) -> bool:
        return self.cover_us == IDLE


def lower_quartile(values: Sequence[float]) -> float:
    """Return the lower quartile of at least two values."""
    return _quartiles(values)[0]


def _quartiles(values: Sequence[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive")
