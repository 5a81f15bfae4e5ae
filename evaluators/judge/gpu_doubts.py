"""What is done about a candidate whose events do not agree with the judge's clock: its pairs are run again.

The new pairs count, and those before do not: who is honest only while doubts are settled is timed as that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from evaluators.judge.rounds import Rounds

_REPEATS, _REPEATING_S = 2, 5.0
"""How often pairs of a workload are run again; not once more after some seconds. Each time a small lie may pass for
noise, so not often."""


class Doubted(Protocol):
    """What times candidates on one workload."""

    @property
    def is_doubtful(self) -> bool:
        """Whether the candidate's events are not to be believed."""

    @property
    def is_refused(self) -> bool:
        """Whether they are not, whatever is added to its time."""

    def begin_again(self) -> None:
        """Forget its pairs."""


def settle_doubts(timers: Sequence[Doubted], run_again: Callable[[int, Rounds], Rounds], rounds: Rounds) -> Rounds:
    """Have pairs of each workload that is doubted run again. Returns what counts.

    Args:
        timers: of all workloads; the first that is refused decides, and the others are not looked at.
        run_again: runs the pairs of one, by its number, given what all came to before.
        rounds: what all came to.
    """
    if rounds.together.hopeless:
        return rounds
    for number, timer in enumerate(timers):
        begun, repeats = time.perf_counter(), 0
        while timer.is_doubtful:
            if repeats == _REPEATS or (repeats and time.perf_counter() - begun > _REPEATING_S):
                break
            timer.begin_again()
            rounds = run_again(number, rounds)
            repeats += 1
            if rounds.together.hopeless:
                return rounds
        if timer.is_refused:
            return rounds
    return rounds
