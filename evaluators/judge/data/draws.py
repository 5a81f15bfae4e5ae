"""Tests the distribution of outputs that are drawn at random, over many calls of one candidate.

A problem with random outputs gives each draw a position in [0, 1) (`positions` in the problem's file), so that right
draws are independent and uniform there. The positions are counted in bins of equal width. The total variation distance
to uniform counts, 1/2 sum |share - 1/bins|, must stay below what chance alone gives:

    sqrt((bins ln 2 + ln(1 / chance)) / (2 draws))

The bound is that of Weissman, Ordentlich, Seroussi, Verdu and Weinberger, "Inequalities for the L1 deviation of the
empirical distribution" (HPL-2003-97R1, 2003), Theorem 2.1. Counted are draws alone (2 to 64 bins) and pairs, in 2 x 2
to 8 x 8 bins: of neighbouring rows of a call, and of one row in two consecutive calls. So rows that share a random
number, and calls that repeat theirs, are found.

Each count refuses a right candidate with a probability of 1e-12 at most; there are twelve for each order of positions,
and again for each workload that is timed. With 2,048 draws a distance of 0.10 in 16 bins is refused, with 64 one of
0.55; below 20 draws nothing is. Predictable generators are not refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from evaluators.judge.check.wrong import WrongOutputError
from evaluators.judge.data.families import DataSet
from evaluators.judge.reference.problem import Tensors
from messages.verdicts import Wrong

CHANCE = 1e-12
"""Probability with which one count refuses a right candidate, at most."""
_BINS = (2, 4, 8, 16, 32, 64)
_SIDES = (2, 4, 8)
_SLACK = 2.0**-10
"""Error of the positions themselves, from rounding in the sums that candidates compute."""


WANTED, LEAST = 2048, 256
"""Number of draws in a check, and the number if making them takes long."""
_LONG_S = 8.0
_MOST_SHARE = 0.5
"""Share of the time limit of all calls of a candidate after which no more draws are made."""
_MOST_CALLS = 4096


class Draws:
    """The draws of one candidate on one workload."""

    def __init__(self) -> None:
        self._found: dict[str, list[torch.Tensor]] = {}
        self.count = 0
        """Number of draws."""

    def add(self, positions: Mapping[str, torch.Tensor]) -> None:
        """Add draws."""
        for name, places in positions.items():
            self._found.setdefault(name, []).append(places)
        self.count += next(iter(positions.values())).numel() if positions else 0

    def complaint(self) -> str:
        """Return what is wrong with the draws as a whole; empty if nothing, or if they are too few to tell."""
        what, distance, limit, count = max(
            self._counts(), key=lambda found: found[1] / found[2], default=("", 0.0, 1.0, 0)
        )
        if distance <= limit:
            return ""
        return (
            f"its outputs are not drawn as the reference's: {what}, {count} draws lie {distance:.3f} in total "
            f"variation from the exact distribution, where chance alone stays below {limit:.3f}"
        )

    @property
    def note(self) -> str:
        """Return their precision in words: the widest margin of a distribution with 16 bins."""
        return (
            f"random outputs: {self.count} draws; a total variation of {bound(16, max(self.count, 1)):.3f} from the "
            "exact distribution, in 16 bins, would have been refused"
        )

    def _counts(self) -> Iterator[tuple[str, float, float, int]]:
        for name, parts in self._found.items():
            places = torch.cat([part.reshape(-1) for part in parts])
            for bins in _BINS:
                yield f"by {name}", _of_cells(_cell(places, bins), bins), bound(bins, len(places)), len(places)
            rows = torch.cat([part[:, : part.shape[1] // 2 * 2].reshape(-1, 2) for part in parts])
            for what, pairs in (("two rows", rows), ("two calls", _call_pairs(parts))):
                for side in _SIDES if len(pairs) else ():
                    cells = _cell(pairs[:, 0], side) * side + _cell(pairs[:, 1], side)
                    distance, limit = _of_cells(cells, side * side), bound(side * side, len(pairs))
                    yield f"by {name}, {what} beside each other", distance, limit, len(pairs)


class CheckedDraws:
    """The draws of a candidate that is being checked on one workload; empty if its outputs are not random."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[DataSet, list[Tensors]]] = {}
        self._draws = Draws()

    def saw(self, data: DataSet, outputs: Tensors) -> None:
        """Keep the outputs of a call."""
        if data.positions is not None:
            kept = self._seen.setdefault(id(data), (data, []))[1]
            kept.append(tuple(output.clone() for output in outputs))

    def finish(self, again: Callable[[DataSet], int], *, limit_s: float) -> None:
        """Make more calls on the data seen, until there are enough draws, and judge all of them."""
        begun, spent_ns = time.perf_counter(), 0
        sets = [data for data, _ in self._seen.values()]
        for number in range(_MOST_CALLS if sets else 0):
            is_long = time.perf_counter() - begun > _LONG_S and self._count >= LEAST
            if self._count >= WANTED or is_long or spent_ns > _MOST_SHARE * limit_s * 1e9:
                break
            # Two calls on each in turn, so that repetitions show in pairs of calls.
            spent_ns += again(sets[number // 2 % len(sets)])
        for data, outputs in self._seen.values():
            if data.positions is not None:
                self._draws.add(data.positions(outputs))
        if said := self._draws.complaint():
            raise WrongOutputError(Wrong(reason=said, family="all calls"))

    @property
    def note(self) -> str:
        """See `Draws`."""
        return self._draws.note

    @property
    def _count(self) -> int:
        return sum(len(calls) * calls[0][0].numel() for _, calls in self._seen.values())


def bound(bins: int, draws: int) -> float:
    """Return the total variation distance that right draws exceed with a probability of at most `CHANCE`."""
    return math.sqrt((bins * math.log(2.0) - math.log(CHANCE)) / (2 * draws)) + _SLACK


def _of_cells(cells: torch.Tensor, bins: int) -> float:
    shares = torch.bincount(cells, minlength=bins).double() / max(len(cells), 1)
    return float((shares - 1.0 / bins).abs().sum()) / 2


def _cell(places: torch.Tensor, bins: int) -> torch.Tensor:
    return (places * bins).long().clamp_(0, bins - 1)


def _call_pairs(parts: list[torch.Tensor]) -> torch.Tensor:
    calls = torch.cat(parts)
    calls = calls[: len(calls) // 2 * 2]
    return torch.stack((calls[0::2], calls[1::2]), dim=-1).reshape(-1, 2)
