"""What candidates are checked on: some families of data for all, others drawn for each.

A candidate sees each data set once (the first is sent again at the end). They are kept for the next candidates (every
one is a process of its own) and renewed bit by bit; timed calls get data that this candidate never saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from evaluators.judge.distributions import ADVERSARIAL, FAR_BELOW
from evaluators.judge.families import CENTRED, CONSTANTS, GIVEN, PERTURBED, SPIKES, DataMaker, DataSet
from evaluators.judge.keeping import Room, release_scratch, room_for
from evaluators.judge.problem import Problem
from messages.tasks import Tolerance

CHECKS = (GIVEN, CENTRED, SPIKES, GIVEN, FAR_BELOW, CONSTANTS, PERTURBED)
"""For every candidate, most wrong ones fail on the first. Drawn families come before the last, which is on other
parameters: modules need another process for those."""
FEW_CHECKS = (GIVEN, CENTRED, SPIKES, FAR_BELOW, CONSTANTS, PERTURBED)
"""For candidates of which each call takes long."""
DRAWN, FEW_DRAWN = 3, 1
"""How many other families each candidate is checked on at least, drawn for it."""
EXTRA_S = 0.5
"""Further ones are, as far as they fit in this time: all of them where tensors are small."""
_OTHERS = tuple(family for family in ADVERSARIAL if family not in {SPIKES, FAR_BELOW})

_RENEW_EVERY = 4
_MAKING_S = 2.0
"""No further family is drawn for a candidate when making their data has taken this long: where little can be kept."""


class CheckData:
    """Data sets with expected values, the first ones the same families for all candidates, the last ones drawn."""

    def __init__(
        self,
        problem: Problem,
        tolerance: Tolerance,
        *,
        families: Sequence[str] = CHECKS,
        drawn: int = DRAWN,
        extra_s: float = EXTRA_S,
        room: Room | None = None,
    ) -> None:
        """Prepare.

        Args:
            problem: the task's.
            tolerance: the task's.
            families: what every candidate is checked on, in this order.
            drawn: how many others besides, at least.
            extra_s: for how long there may be more of them.
            room: for what is kept, which workloads share; null: as much as there is for one.
        """
        self._maker = DataMaker(problem, tolerance)
        self._families = families
        self._drawn, self._extra_s = drawn, extra_s
        self._spent_s = 0.0
        """What making data of drawn families for this candidate has taken."""
        self._kept: dict[str, DataSet] = {}
        self._room = room or room_for([problem])
        self._candidates = 0
        self._chance = random.SystemRandom()

    @property
    def reference_dtype(self) -> str:
        """Return the precision of the expected values; of the reference, where the problem says what is right."""
        problem = self._maker.problem
        return problem.output_specs[0].dtype if problem.has_check else self._maker.reference_dtype

    @property
    def skipped(self) -> dict[str, str]:
        """Return the families that this reference cannot be checked on, and why."""
        return self._maker.skipped

    @property
    def never_varied(self) -> tuple[str, ...]:
        """Return the names of inputs that had the same value in every call."""
        return self._maker.never_varied

    def sets(self) -> Iterator[DataSet]:
        """Yield the data sets for one candidate, each once."""
        yield from self.on_given_state()
        yield from self.drawn()
        yield from self.on_other_state()

    @property
    def has_other_state(self) -> bool:
        """Whether there may be data with other parameters."""
        return self._maker.applies(self._families[-1])

    def forget(self) -> bool:
        """Drop what is kept. Returns whether anything was."""
        was_there = bool(self._kept)
        for data in self._kept.values():
            self._room.give_back(data.size_bytes)
        self._kept.clear()
        return was_there

    def in_brief(self) -> Iterator[DataSet]:
        """Yield what the task draws."""
        self._begin()
        first = self._families[0]
        yield from self._found(first, f"{first} 0")

    def drawn_in_brief(self) -> Iterator[DataSet]:
        """Yield data of one other family with the task's own parameters, drawn by lot."""
        first, *others = self._families[:-1]
        families = [family for family in dict.fromkeys((*others, *_OTHERS)) if family != first]
        self._chance.shuffle(families)
        # Those that are there come first, most of the time: making one in float64 takes longer than a good candidate.
        if self._chance.randrange(_RENEW_EVERY):
            families.sort(key=lambda family: family not in self._kept)
        for family in families:
            for data in self._found(family, family):
                yield data
                return

    def on_given_state(self) -> Iterator[DataSet]:
        """Yield what every candidate is checked on with the task's own parameters: all but the last."""
        self._begin()
        for index, family in enumerate(self._families[:-1]):
            yield from self._found(family, f"{family} {index}")

    def _begin(self) -> None:
        """Begin with another candidate: now and then without the oldest of what is kept."""
        self._candidates += 1
        if self._candidates % _RENEW_EVERY == 0 and self._kept:
            # The oldest: a dictionary keeps the order in which things came.
            self._room.give_back(self._kept.pop(next(iter(self._kept))).size_bytes)

    def on_other_state(self) -> Iterator[DataSet]:
        """Yield what comes last: data with other parameters, or nothing if there are none."""
        last = self._families[-1]
        yield from self._found(last, f"{last} {len(self._families) - 1}")

    def drawn(self) -> Iterator[DataSet]:
        """Yield those of families that are drawn for this candidate."""
        yielded, begun, self._spent_s = 0, time.perf_counter(), 0.0
        for family in self._chance.sample(_OTHERS, len(_OTHERS)):
            is_enough = yielded >= self._drawn and time.perf_counter() - begun >= self._extra_s
            if is_enough or self._spent_s > _MAKING_S:
                return
            for data in self._found(family, family):
                yielded += 1
                yield data

    def _found(self, family: str, key: str) -> Iterator[DataSet]:
        """Yield the data set, or none if the family does not apply."""
        if key in self._kept:
            yield self._kept[key]
            return
        if not self._maker.applies(family):
            return
        begun = time.perf_counter()
        data = self._maker.make(family)
        release_scratch(self._maker.problem.device)
        self._spent_s += time.perf_counter() - begun
        if data is None:
            return
        if self._room.take(data.size_bytes):
            self._kept[key] = data
        yield data
