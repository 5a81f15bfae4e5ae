"""The data of timed calls: nobody has seen it, and some of it is adversarial."""

from __future__ import annotations

import math
import random
import time
from collections import deque

from evaluators.judge.families import (
    CENTRED,
    GIVEN,
    NEARLY_EQUAL,
    NEARLY_EQUAL_PARAMETERS,
    PERTURBED,
    SPIKES,
    DataMaker,
    DataSet,
    new_seed,
)
from evaluators.judge.keeping import timed_bytes
from evaluators.judge.problem import Problem
from messages.tasks import Tolerance

_ADVERSARIAL_ONE_IN = 2
"""So that most of the kinds, of which there are five at most, are among the eight calls that most often are timed at
least. Where four have to do, two kinds are."""
_NEARLY = frozenset({NEARLY_EQUAL, NEARLY_EQUAL_PARAMETERS})
_RENEWING_S = 0.5
"""For how long data that a candidate saw is made anew before the next one, that of all workloads together: large
tensors take longer."""


class TimedData:
    """Inputs for timed calls, made before the lease as far as memory allows.

    One in two is adversarial, the first or the second by chance. The kinds take turns: spikes in data that looks like
    the others, the last call's data or that of an older one with one or two elements changed, of parameters too, other
    signs, other parameters. A candidate knows when it is timed, by its priority or by counting, so what the checks
    found there would hold for checks only.
    """

    def __init__(self, problem: Problem, tolerance: Tolerance, *, same_state: bool = False, share: int = 1) -> None:
        """Prepare.

        Args:
            problem: the task's.
            tolerance: the task's.
            same_state: never change parameters: modules hold theirs, others would take another process.
            share: how many workloads share the memory for data, and the time for making it anew.

        Raises:
            ProblemError: the reference fails.
        """
        self._maker = maker = DataMaker(problem, tolerance)
        self._ready: list[DataSet] = []
        self._most_bytes = timed_bytes(problem) // share
        self._renewing_s = _RENEWING_S / share
        self._served = 0
        self._last: DataSet | None = None
        self._chance = random.SystemRandom()
        self._plan: list[bool] = []
        """Which of the next data sets are adversarial."""
        state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in problem.state)
        keeps_state = same_state or state_bytes > self._most_bytes
        kinds = [SPIKES, NEARLY_EQUAL, CENTRED, *(() if keeps_state else (PERTURBED, NEARLY_EQUAL_PARAMETERS))]
        self._kinds = deque(self._chance.sample(kinds, len(kinds)))
        """Which comes next, where it can be had."""
        self._allowed = maker.given().allowed

    def prepare(self, count: int) -> None:
        """Make up to `count` data sets. What the last candidate saw is made anew, unless the reference computed it.

        Nothing, if no candidate saw any since.
        """
        if self._ready and not self._served:
            return
        begun = time.monotonic()
        for place in self._chance.sample(range(self._served), self._served):
            if time.monotonic() - begun > self._renewing_s:
                break
            if place < len(self._ready) and self._ready[place].family in {GIVEN, *_NEARLY}:
                self._ready[place] = self._of_family(self._ready[place].family)
        if self._ready:
            self._ready.pop(0)
        while len(self._ready) < count and self._fits():
            self._ready.append(self._make(may_compute=True))
        self._served = 0

    def next(self) -> DataSet:
        """Return one that this candidate has not seen."""
        if self._served < len(self._ready):
            data = self._ready[self._served]
        else:
            data = self._make(may_compute=False)
            if self._fits():
                self._ready.append(data)
        self._served += 1
        return data

    def replace(self, count: int, *, is_hurried: bool = False) -> None:
        """Make `count` data sets that this candidate has not seen, of all kinds, in place of what it saw.

        Args:
            count: how many.
            is_hurried: run the reference for no longer than before another candidate; what follows needs none.
        """
        until = time.monotonic() + self._renewing_s if is_hurried else math.inf
        del self._ready[: self._served]
        self._served = 0
        while len(self._ready) < count and self._fits():
            self._ready.append(self._make(may_compute=time.monotonic() < until))

    def apart(self) -> DataSet:
        """Return one that is not among those to come."""
        return self._of_family(GIVEN)

    def _fits(self) -> bool:
        if not self._ready:
            return True
        return self._ready[0].size_bytes * (len(self._ready) + 1) <= self._most_bytes

    def _make(self, *, may_compute: bool) -> DataSet:
        """Make the next data set.

        Args:
            may_compute: there is time to run the reference on it.
        """
        if not self._plan:
            self._plan = [True] + [False] * (_ADVERSARIAL_ONE_IN - 1)
            self._chance.shuffle(self._plan)
        data = self._adversarial(may_compute=may_compute) if self._plan.pop() else None
        self._last = self._of_family(GIVEN) if data is None else data
        return self._last

    def _of_family(self, family: str) -> DataSet:
        """Make data that needs no reference: as the task draws it, or nearly equal to the last or to an older set."""
        if family in _NEARLY and self._last is not None:
            base = self._chance.choice([self._last, self._chance.choice(self._ready or [self._last])])
            return self._maker.nearly(base, family)
        data = self._maker.bare(GIVEN, new_seed())
        data.allowed = self._allowed
        return data

    def _adversarial(self, *, may_compute: bool) -> DataSet | None:
        """Make a data set of the next kind; None where the problem has none."""
        for _ in range(len(self._kinds)):
            self._kinds.rotate(-1)
            kind = self._kinds[-1]
            if kind in _NEARLY:
                can_be = self._maker.can_vary if kind == NEARLY_EQUAL else self._maker.applies(kind)
                if can_be and self._last is not None:
                    return self._of_family(kind)
            elif may_compute and self._maker.applies(kind) and (data := self._maker.make(kind)) is not None:
                data.expected = ()
                return data
        return None
