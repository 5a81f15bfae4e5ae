"""Times a candidate against the reference: ABBA pairs, the median of log ratios and its interval.

The k-th smallest and the k-th largest of n independent values enclose the median of their distribution with probability
1 - 2 P(B < k), B binomial (n, 1/2) (order statistics; David and Nagaraja 2003, section 7.1). Between two neighbouring k
the ends are interpolated as by Hettmansperger and Sheather (1986). A percentile bootstrap of so few values covers 88 %
instead of 95 %.

Per pair: fresh inputs, the same for both sides; cold caches before each call; one side is stopped while the other runs;
the cost of an empty call is subtracted. The unit is a block, two pairs A B, B A: the mean of their log(reference /
candidate), free of drift and of the cost of going second. A pair is dropped only as a whole, for reasons other than its
times; it is run again in the same order, and counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from math import comb, sqrt
from pathlib import Path
from statistics import median, stdev

import msgspec
import torch

from messages.commands import Purpose
from messages.verdicts import Interval, Outpaced, Quarantined

COVERAGE = 0.97
"""Coverage of an interval that is computed once. Adding pairs until it is narrow enough costs two percent, which leaves
95 %."""

FOUR = 4
_QUANTILE_OF_FOUR = 3.981
"""Quantile at COVERAGE of the median of four normal values in standard errors, by 20 million draws; for the mean,
Student's t, it is 3.896."""


def interval_of_four(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of four values and the ends of its interval, for approximately normal noise.

    It is Student's (1908), but about the median, which one outlier does not move. With 97 % for normal noise, Student's
    t with 2 or 3 degrees of freedom and Laplace's have 98 %, noise with a fifth of outliers 97 %, exponential noise 96
    %.
    """
    middle = median(values)
    half_width = _QUANTILE_OF_FOUR * stdev(values) / sqrt(FOUR)
    return middle, middle - half_width, middle + half_width


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of values and the ends of its interval.

    With fewer than six values the interval is the smallest and the largest, which is too narrow: 94 % for five, 75 %
    for three, none for one.
    """
    ordered = sorted(values)
    rank, share = _rank(len(ordered))
    low = _between(ordered[rank - 1], ordered[rank], share) if share else ordered[rank - 1]
    high = _between(ordered[-rank], ordered[-rank - 1], share) if share else ordered[-rank]
    return median(ordered), low, high


@cache
def _rank(count: int) -> tuple[int, float]:
    rank = 1
    while rank + 1 <= count // 2 and _coverage(count, rank + 1) >= COVERAGE:
        rank += 1
    wide = _coverage(count, rank)
    if wide <= COVERAGE or rank + 1 > count // 2:
        return rank, 0.0
    excess = (wide - COVERAGE) / (wide - _coverage(count, rank + 1))
    return rank, (count - rank) * excess / (rank + (count - 2 * rank) * excess)


def _coverage(count: int, rank: int) -> float:
    return 1.0 - 2.0 * sum(comb(count, below) for below in range(rank)) / float(2**count)


def _between(this: float, other: float, share: float) -> float:
    return this + share * (other - this)


_FLOOR_NS = 1000
"""Shorter times count as a microsecond, since the clock's round trip is not finer."""
_SWEEP_FACTOR = 2
_SWEEP_PASSES = 4
"""Once is not enough: caches protect their content from a single pass over much memory. A copy of 4 MiB then takes 1.3
times as long as warm, after four passes 2.4 times, after sixteen 2.6 times (docs/benchmarks/sweeps.json); and the
protected part changes from one second to the next."""
_MAX_SWEEP_BYTES = 256 << 20
_DEFAULT_CACHE_BYTES = 32 << 20
BLOCK = 2
"""Pairs of a block: one begins with the candidate, the other with the reference."""
_CHECK_EVERY = 4


class TimingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for ending the timing."""

    min_pairs: int = 12
    """Six blocks: with fewer, except four (`interval_of_four`), no interval has its nominal coverage."""
    min_pairs_of_several: int = 12
    """Pairs of each of several workloads, which are measured together."""
    long_ns: float = math.inf
    """Calls of the reference longer than this may get four pairs on one of several workloads: long calls have less
    noise, and take most of the time."""
    max_pairs: int = 120
    lease_s: float = 1.5
    """No new pair after this, once there are `min_pairs` and the interval is not useless."""
    stretched_lease_s: float = 6.0
    """No new pair after this, once there are `min_pairs`."""
    more_time: float = 0.25
    """Share of both limits that each further workload adds."""
    half_width: float = 0.008
    """Relative half width of an interval that is narrow enough."""
    unstable_half_width: float = 0.20
    hopeless_pairs: int = 4
    """A candidate that is clearly slower than half the reference's speed is given up after these, if `min_pairs` would
    take longer than `lease_s`."""
    hopeless_speedup: float = 0.5
    far_below: float = 0.25
    """Share of the wanted speedup: a candidate below it in its first block is given up."""
    keep_above: float | None = None
    """Racing: instead of half the reference's speed, the speedup that a candidate must reach to be timed to the end. It
    is given up as soon as it clearly does not, however fast its calls are. 0: no race; see `patience_s`."""
    patience_s: float = 60.0
    """Without a race, seconds that `min_pairs` may take before a slow candidate is given up."""
    max_own_discards: int = 6
    """Pairs that may be dropped because only the candidate was disturbed, beyond twice those in which the reference
    was: with more a candidate could choose which of its calls count."""
    max_disturbed: int = 12
    """Number of disturbed pairs, if they exceed the others, at which the host is unfit for timing."""


POLICIES: dict[Purpose, TimingPolicy] = {
    "screen": TimingPolicy(),
    "confirm": TimingPolicy(min_pairs=16, max_pairs=300, lease_s=5.0, half_width=0.005),
}


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two calls on the same inputs, with empty calls subtracted."""

    candidate_ns: int
    reference_ns: int
    disturbance: str = ""
    """Known reason that kept a side from running; empty: none. Never derived from the times themselves."""
    is_own: bool = False
    """True if only the candidate was disturbed, or went on: it may have caused that."""

    @property
    def log_ratio(self) -> float:
        """Return log(reference / candidate)."""
        return math.log(self.reference_ns / self.candidate_ns)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Result of pairs."""

    pairs: int
    latency_us: float
    reference_latency_us: float
    speedup: float
    interval: Interval
    half_width: float
    """Half width of the interval of the log ratio: about its relative half width."""
    hopeless: bool = False
    discarded: tuple[str, ...] = ()
    """Disturbances of the discarded pairs."""
    is_disturbed: bool = False
    """True if timing was given up because of too many; then all pairs are in the figures."""
    own_discards: int = 0
    """Discarded pairs that the candidate may have caused."""
    is_chosen: bool = False
    """True if timing was given up because of these."""


def net_ns(elapsed_ns: int, empty_ns: int) -> int:
    """Return a call's own time."""
    return max(elapsed_ns - empty_ns, _FLOOR_NS)


def floored(timing: Timing, floor_us: float) -> Timing:
    """Report a candidate that took less than `floor_us` as if it had taken that; its speedup is at least as large."""
    return slowed(timing, max(floor_us / timing.latency_us, 1.0))


def slowed(timing: Timing, factor: float, *, is_certain: bool = True) -> Timing:
    """Report a candidate as if it had taken longer by a factor.

    Args:
        timing: the measured timing.
        factor: 1 or more; less for a candidate that was kept waiting.
        is_certain: false: the factor may be wrong, so the upper end stays.
    """
    high = timing.interval.high
    interval = Interval(low=timing.interval.low / factor, high=high / factor if is_certain else high)
    return msgspec.structs.replace(
        timing, latency_us=timing.latency_us * factor, speedup=timing.speedup / factor, interval=interval
    )


def widened(interval: Interval, doubt: float) -> Interval:
    """Return an interval widened by an uncertainty that all pairs share and therefore cannot show."""
    return Interval(low=interval.low * math.exp(-doubt), high=interval.high * math.exp(doubt))


def time_pairs(run_pair: Callable[[bool], Pair], policy: TimingPolicy) -> Timing:
    """Run pairs until the interval is narrow enough or the lease is used up."""
    begun = time.perf_counter()
    pairs: list[Pair] = []
    disturbed: list[Pair] = []
    while True:
        # A B, B A, A B, B A: together with the next pair this is ABBA.
        pair = run_pair(len(pairs) % 2 == 0)
        (disturbed if pair.disturbance else pairs).append(pair)
        if is_unfit(pairs, disturbed, policy):
            everything = summarize([*pairs, *disturbed])
            return with_discards(everything, disturbed, policy, is_unfit=True)
        spent_s = time.perf_counter() - begun
        is_block = len(pairs) % BLOCK == 0 and (spent_s > policy.lease_s or len(pairs) == BLOCK)
        if len(pairs) % _CHECK_EVERY == 0 or is_block:
            timing = decide(summarize(pairs), spent_s, policy) if pairs else None
            if timing is not None:
                return with_discards(timing, disturbed, policy)


def is_unfit(pairs: Sequence[Pair], disturbed: Sequence[Pair], policy: TimingPolicy) -> bool:
    """Return True if too many pairs were disturbed to go on."""
    is_host = len(disturbed) >= policy.max_disturbed and len(disturbed) > len(pairs)
    return is_host or _is_chosen(disturbed, policy)


def _is_chosen(disturbed: Sequence[Pair], policy: TimingPolicy) -> bool:
    """Return True if the candidate was disturbed often enough, compared with the reference, to choose its pairs."""
    own = sum(pair.is_own for pair in disturbed)
    return own > policy.max_own_discards + 2 * (len(disturbed) - own)


def with_discards(timing: Timing, disturbed: Sequence[Pair], policy: TimingPolicy, *, is_unfit: bool = False) -> Timing:
    """Return the timing with its discarded pairs; `is_unfit`: timing was given up because of them."""
    return msgspec.structs.replace(
        timing,
        discarded=tuple(pair.disturbance for pair in disturbed),
        own_discards=sum(pair.is_own for pair in disturbed),
        is_disturbed=is_unfit,
        is_chosen=_is_chosen(disturbed, policy),
    )


def decide(timing: Timing, spent_s: float, policy: TimingPolicy) -> Timing | None:
    """Return the result if it is time to stop."""
    late, count = spent_s > policy.lease_s, timing.pairs
    affordable_s = policy.patience_s if policy.keep_above == 0 else policy.lease_s
    if _is_hopeless(timing, policy, is_costly=spent_s / count * policy.min_pairs > affordable_s):
        return msgspec.structs.replace(timing, hopeless=True)
    if count < policy.min_pairs:
        return None
    enough = timing.half_width <= policy.half_width or count >= policy.max_pairs
    useless = timing.half_width > policy.unstable_half_width and spent_s <= policy.stretched_lease_s
    return timing if enough or (late and not useless) else None


def _is_hopeless(timing: Timing, policy: TimingPolicy, *, is_costly: bool) -> bool:
    """Return True if a candidate is certainly so slow that its exact speed does not matter.

    A few pairs have too narrow an interval, so they must be below the bar by their own spread as well.
    """
    few, is_raced = timing.pairs < policy.min_pairs, bool(policy.keep_above)
    if not is_raced and not (few and is_costly):
        return False
    bar = policy.keep_above or policy.hopeless_speedup
    if timing.pairs < policy.hopeless_pairs:
        return timing.interval.high < policy.far_below * bar
    margin = math.exp(2 * timing.half_width) if few and is_raced else 1.0
    return timing.interval.high * margin < bar


def outpaced(timing: Timing, policy: TimingPolicy) -> Outpaced:
    """Return the verdict on a candidate that was given up."""
    bar = f"the {policy.keep_above:.3g}x that was to be reached" if policy.keep_above else "the reference"
    after = f"after {timing.pairs} pairs" if timing.pairs else "in its first calls, before it was timed"
    return Outpaced(
        reason=f"clearly slower than {bar}: about {timing.speedup:.3g}x {after}", speedup_interval=timing.interval
    )


def about(pair: Pair, factor: float) -> Timing:
    """Return the timing that follows from calls that do not form pairs."""
    doubt, speedup = math.log(factor), math.exp(pair.log_ratio)
    return Timing(
        pairs=0,
        latency_us=pair.candidate_ns / 1000,
        reference_latency_us=pair.reference_ns / 1000,
        speedup=speedup,
        interval=widened(Interval(low=speedup, high=speedup), doubt),
        half_width=doubt,
    )


def too_fast(
    timing: Timing, *, tensor_bytes: int, needed_bytes: Callable[[], int], bytes_per_s: float
) -> Quarantined | None:
    """Return a verdict if a candidate took less time than memory needs for its reads and writes; None: it did not.

    If the reference is below that limit, too, the task does not touch all of it: it gathers rows, for example.

    Args:
        timing: timing of the candidate.
        tensor_bytes: bytes of inputs and outputs.
        needed_bytes: returns the bytes on which the outputs depend; called only below the time for all of them.
        bytes_per_s: bandwidth that no memory reaches.
    """

    def is_below(size_bytes: int) -> bool:
        return timing.latency_us < size_bytes / bytes_per_s * 1e6 <= timing.reference_latency_us

    if not is_below(tensor_bytes) or not is_below(needed := needed_bytes()):
        return None
    reason = (
        f"{timing.latency_us:.2f} us is less than {needed / bytes_per_s * 1e6:.2f} us, in which no memory could "
        f"deliver the {needed:,} bytes that the outputs depend on (of {tensor_bytes:,})"
    )
    return Quarantined(reason=reason, speedup_interval=timing.interval)


def summarize(pairs: list[Pair], *, may_do: bool = False) -> Timing:
    """Return the medians and the interval; the same pairs say the same."""
    middle, low, high = ratio_interval([pair.log_ratio for pair in pairs], may_do=may_do)
    return Timing(
        pairs=len(pairs),
        latency_us=median(pair.candidate_ns for pair in pairs) / 1000,
        reference_latency_us=median(pair.reference_ns for pair in pairs) / 1000,
        speedup=math.exp(middle),
        interval=Interval(low=math.exp(low), high=math.exp(high)),
        half_width=(high - low) / 2,
    )


def ratio_interval(ratios: Sequence[float], *, may_do: bool = False) -> tuple[float, float, float]:
    """Return the median of the log ratios of pairs, by blocks, and the ends of its interval."""
    # A last pair without its other half counts only if there is nothing else.
    blocks = block_means(ratios) or ratios
    counted = ratios if may_do and len(ratios) == FOUR else blocks
    return interval_of_four(counted) if len(counted) == FOUR else median_interval(counted)


def block_means(values: Sequence[float]) -> list[float]:
    """Return the means of each block's values, without an incomplete last block."""
    return [(first + second) / BLOCK for first, second in zip(values[::BLOCK], values[1::BLOCK], strict=False)]


class CacheSweeper:
    """Reads more memory than the last-level cache has, so that each timed call begins with cold data."""

    def __init__(self, passes: int = _SWEEP_PASSES) -> None:
        self.cache_bytes = last_level_cache_bytes()
        self.size_bytes = min(_SWEEP_FACTOR * self.cache_bytes, _MAX_SWEEP_BYTES)
        self.passes = passes
        self._memory = torch.ones(self.size_bytes // 8, dtype=torch.int64)

    def sweep(self) -> None:
        """Read it all."""
        for _ in range(self.passes):
            self._memory.sum()


def last_level_cache_bytes() -> int:
    """Return the size of all last-level caches of this host together; 32 MiB if it does not tell."""
    found: dict[str, tuple[int, int]] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
            shared = (folder / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue
        if size.endswith("K"):
            found[f"{level}:{shared}"] = (level, int(size[:-1]) << 10)
    if not found:
        return _DEFAULT_CACHE_BYTES
    last = max(level for level, _ in found.values())
    return sum(size for level, size in found.values() if level == last)
