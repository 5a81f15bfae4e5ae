"""Times a candidate against the reference: ABBA pairs, the judge's clock, the median of log ratios with its interval.

Per pair: fresh inputs, the same for both sides; before each of the two calls the last-level cache is swept; while one
side runs the other is stopped; the candidate's output is poisoned before and compared with the reference's after. From
each time the cost of an empty call is taken off. Pairs go A B, B A, A B, … so that drift falls on both alike. The
interval is a 95 % bootstrap percentile interval (Efron 1979) of the median over pairs of log(reference / candidate).
Pairs are never dropped by their values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from messages.commands import Purpose
from messages.verdicts import Interval

_RESAMPLES = 1000
_FLOOR_NS = 1000
"""Times below a microsecond are told as one: the clock's round trip is not that fine."""
_SWEEP_FACTOR = 2
_MAX_SWEEP_BYTES = 256 << 20
_DEFAULT_CACHE_BYTES = 32 << 20
_CHECK_EVERY = 4


class TimingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop."""

    min_pairs: int = 8
    max_pairs: int = 40
    lease_s: float = 2.0
    """No new pair after this, once there are `min_pairs` and the interval is not useless."""
    stretched_lease_s: float = 6.0
    """No new pair after this, once there are `min_pairs`."""
    half_width: float = 0.02
    """Of the interval, relative: narrow enough."""
    unstable_half_width: float = 0.20
    hopeless_pairs: int = 4
    """After `lease_s`, a candidate that is clearly slower than half the reference's speed is given up after these."""
    hopeless_speedup: float = 0.5


POLICIES: dict[Purpose, TimingPolicy] = {
    "screen": TimingPolicy(),
    "confirm": TimingPolicy(min_pairs=16, max_pairs=100, lease_s=5.0, half_width=0.01),
}


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two calls on the same inputs, empty calls taken off."""

    candidate_ns: int
    reference_ns: int

    @property
    def log_ratio(self) -> float:
        """Return log(reference / candidate)."""
        return math.log(self.reference_ns / self.candidate_ns)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What the pairs say."""

    pairs: int
    latency_us: float
    reference_latency_us: float
    speedup: float
    interval: Interval
    half_width: float
    """Of the interval of the log ratio: about its relative half width."""
    hopeless: bool = False


def net_ns(elapsed_ns: int, empty_ns: int) -> int:
    """Return a call's own time."""
    return max(elapsed_ns - empty_ns, _FLOOR_NS)


def time_pairs(run_pair: Callable[[bool], Pair], policy: TimingPolicy) -> Timing:
    """Run pairs until the interval is narrow enough or the lease is used up.

    Args:
        run_pair: measures one pair; told whether the candidate goes first.
        policy: when to stop.
    """
    begun = time.perf_counter()
    pairs: list[Pair] = []
    while True:
        # A B, B A, A B, B A: together with the next pair this is ABBA.
        pairs.append(run_pair(len(pairs) % 2 == 0))
        spent_s = time.perf_counter() - begun
        if len(pairs) % _CHECK_EVERY == 0 or spent_s > policy.lease_s:
            timing = _decide(pairs, spent_s, policy)
            if timing is not None:
                return timing


def _decide(pairs: list[Pair], spent_s: float, policy: TimingPolicy) -> Timing | None:
    """Return the result if it is time to stop."""
    late, count = spent_s > policy.lease_s, len(pairs)
    if count < policy.hopeless_pairs:
        return None
    timing = summarize(pairs)
    if count < policy.min_pairs:
        hopeless = late and timing.interval.high < policy.hopeless_speedup
        return msgspec.structs.replace(timing, hopeless=True) if hopeless else None
    enough = timing.half_width <= policy.half_width or count >= policy.max_pairs
    useless = timing.half_width > policy.unstable_half_width and spent_s <= policy.stretched_lease_s
    return timing if enough or (late and not useless) else None


def summarize(pairs: list[Pair]) -> Timing:
    """Return medians and the bootstrap interval. The resampling has a fixed seed: the same pairs say the same."""
    ratios = torch.tensor([pair.log_ratio for pair in pairs], dtype=torch.float64)
    generator = torch.Generator().manual_seed(len(pairs))
    draws = torch.randint(len(pairs), (_RESAMPLES, len(pairs)), generator=generator)
    medians = _medians(ratios[draws])
    low, high = torch.quantile(medians, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Timing(
        pairs=len(pairs),
        latency_us=_median_us([pair.candidate_ns for pair in pairs]),
        reference_latency_us=_median_us([pair.reference_ns for pair in pairs]),
        speedup=math.exp(float(_medians(ratios.view(1, -1)))),
        interval=Interval(low=math.exp(low), high=math.exp(high)),
        half_width=(high - low) / 2,
    )


def _medians(rows: torch.Tensor) -> torch.Tensor:
    """Return the median of each row; with an even count the mean of the middle two."""
    return torch.quantile(rows, 0.5, dim=1)


def _median_us(times_ns: list[int]) -> float:
    return float(_medians(torch.tensor([times_ns], dtype=torch.float64))) / 1000


class CacheSweeper:
    """Reads more memory than the last-level cache holds, so that each timed call begins with cold data."""

    def __init__(self) -> None:
        cache_bytes = last_level_cache_bytes()
        self.size_bytes = min(_SWEEP_FACTOR * cache_bytes, _MAX_SWEEP_BYTES)
        self._memory = torch.ones(self.size_bytes // 8, dtype=torch.int64)

    def sweep(self) -> None:
        """Read it all."""
        self._memory.sum()


def last_level_cache_bytes() -> int:
    """Return the size of all last-level caches of this host together; 32 MiB where it does not say."""
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
