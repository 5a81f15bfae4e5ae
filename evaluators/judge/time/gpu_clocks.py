"""Two clocks for the same calls on a GPU: the events of the side's process, and the judge's own around them.

`gpu.py` describes how the excess of the judge's clock over the events is used. Times in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from evaluators.judge.candidate.side import Answer
from evaluators.judge.time.gpu_cover import IDLE
from evaluators.judge.time.sampling import BLOCK, block_means

_SLACKS = ((12_000, 0.03), (20_000, 0.04), (40_000, 0.06))
"""Noise: by how much a call's excess of the judge's clock over the events may be above that of an empty call, in ns and
as a share of the candidate's time; for the lower quartiles, the medians and the upper quartiles. The lower ones miss a
candidate with work beside its events in some calls only, and a waiting process changes the upper ones."""
_FIRST_SLACK_NS, _FIRST_SLACK_SHARE = 48_000, 0.02
"""Tolerated increase for empty calls from before the candidate was loaded. For the lower quartiles 50 us were seen on
an H200 with honest kernels."""
_MOST_ADDED, _ADDED_AT_ONCE = 0.2, 0.03
"""Largest share of a call's time beyond noise that is added to it before a candidate is refused. Above the smaller
share, unless the GPU was idle, pairs are run again first.

Of eight pairs the lower quartiles of honest calls are 5 to 15 us beyond those of empty ones (a module in Triton, H200;
standard deviation 10), in some processes 20 for as long as they live: four of forty evaluations were refused with a
limit of 12 us. Calls on an idle GPU keep the host at work, which returns to its next instructions with cold caches: up
to 8 % (`eigh` of small matrices).
"""

_USUAL_SHARE = 0.1
"""Share of the candidate's time above which an excess is unusual, however large a long reference's is."""


class Unloaded:
    """Empty calls of a process before it contains the candidate; they copy no outputs."""

    def __init__(self, take_ns: float) -> None:
        self._take_ns = take_ns
        self._around: dict[int, list[int]] = {}

    def add(self, cover_us: int, answer: Answer) -> None:
        """Record the excess of the judge's clock over the events of an empty call behind this cover."""
        self._around.setdefault(cover_us, []).append(answer.elapsed_ns - answer.span_ns)

    def around_ns(self, cover_us: int) -> list[float]:
        """Return the quartiles of that, without the judge's copy."""
        return [around_ns - self._take_ns for around_ns in _quartiles(self._around[cover_us])]


class Seen:
    """Measurements of one candidate on one workload."""

    def __init__(self, unloaded: Unloaded, copy_ns: float, take_ns: float, *, reference_cover_us: int = IDLE) -> None:
        self._unloaded, self._copy_ns, self._take_ns = unloaded, copy_ns, take_ns
        self._is_reference_idle = reference_cover_us == IDLE
        self.candidate: list[int] = []
        self.reference: list[int] = []
        self.second: list[int] = []
        """Times of the second baseline."""
        self._around: dict[str, list[int]] = {}
        self.cover_us = IDLE
        """Length of the cover before its calls, in us."""
        self.is_entered = False
        """True once that is known."""
        self.repeats = 0
        """Number of times that all pairs were run again because its events were doubted."""
        self._worst_share = 0.0
        """The largest `added_share` of earlier pairs."""

    def add(self, what: str, answer: Answer) -> None:
        """Record the excess of the judge's clock over the events of a call, or of an empty one."""
        self._around.setdefault(what, []).append(answer.elapsed_ns - answer.span_ns)

    def repeat(self, *, longest_us: int) -> None:
        """Drop all pairs; others replace them."""
        self._worst_share = max(self._worst_share, self.added_share)
        if not self._is_idle:
            self.cover_us = longest_us
        self.repeats += 1
        for times in (self.candidate, self.reference, self.second, self._around):
            times.clear()

    def excess_ns(self, what: str, empty: str) -> list[float]:
        """Return the quartiles of the excess of calls over that of empty ones, by the judge's clock.

        The lower ones are the most reliable, since waiting only adds to the excess.
        """
        quartiles = zip(_quartiles(self._around[what]), _quartiles(self._around[empty]), strict=True)
        return [around_ns - empty_ns for around_ns, empty_ns in quartiles]

    @property
    def beyond_ns(self) -> list[float]:
        """Quartiles of the candidate's excess over that of empty calls, by the judge's clock."""
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
        """How far any of those exceeds noise, for calls or for the means of blocks; below 0: none does.

        If both begin on an idle GPU, the reference's calls show what else to expect, if that is little.
        """
        span_ns, both_idle = median(self.candidate), self._is_idle and self._is_reference_idle
        usual_ns = max(0.0, self.excess_ns("reference", "empty reference")[0]) if both_idle else 0.0
        usual_ns = min(usual_ns, _USUAL_SHARE * span_ns)
        calls, empty = self._around["call"], self._around["empty call"]
        over_ns = self._over_ns(calls, empty, _SLACKS, span_ns)
        if len(calls) >= 2 * BLOCK:  # of one block there are no quartiles
            # Blocks count: with hidden work in one call of each, half of it. A call that waited turns a mean into
            # noise, so only the lower quartiles are used.
            over_ns = max(over_ns, self._over_ns(block_means(calls), block_means(empty), _SLACKS[:1], span_ns))
        return over_ns - usual_ns

    def _over_ns(
        self, calls: Sequence[float], empty: Sequence[float], slacks: Sequence[tuple[int, float]], span_ns: float
    ) -> float:
        """Return how far any of the first quartiles of calls exceeds that of empty ones beyond noise."""
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
        """True if that is more than may be added to its time without new pairs."""
        return self.added_share > (_MOST_ADDED if self._is_idle else _ADDED_AT_ONCE)

    @property
    def is_refused(self) -> bool:
        """True if it is doubtful, and the largest excess of any pairs is more than may be added at all.

        Not the best of three counts: only pairs that are not doubtful clear a candidate of earlier ones.
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
