"""Which pairs are run again, and how often, on workloads that are made up: no GPU is needed for that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evaluators.judge.time.gpu import settle_doubts
from evaluators.judge.time.sampling import Pair, summarize
from evaluators.judge.time.timing import Rounds

ROUNDS = Rounds(timings=(), together=summarize([Pair(candidate_ns=1000, reference_ns=2000)] * 4))
HOPELESS = replace(ROUNDS, together=replace(ROUNDS.together, hopeless=True))


class Workload:
    """Is doubtful until its pairs have been run some times more; whoever is so for ever, is refused."""

    def __init__(self, doubtful_for: int) -> None:
        self.left = doubtful_for
        self.is_refused = doubtful_for > 100

    @property
    def is_doubtful(self) -> bool:
        return self.left > 0

    def begin_again(self) -> None:
        self.left -= 1


@pytest.mark.parametrize(
    ("doubtful_for", "run"),
    [
        ([0, 0], []),
        ([0, 1], [1]),
        ([2, 1], [0, 0, 1]),
        ([3, 1], [0, 0, 1]),  # still doubtful: something is added to its time
        ([999, 1], [0, 0]),  # that decides
    ],
)
def test_pairs_of_what_is_doubted_are_run_again_and_not_for_ever(doubtful_for: list[int], run: list[int]) -> None:
    ran: list[int] = []

    def run_again(number: int, before: Rounds) -> Rounds:
        ran.append(number)
        return before

    settle_doubts([Workload(count) for count in doubtful_for], run_again, ROUNDS)
    assert ran == run


def test_what_comes_of_the_last_pairs_counts() -> None:
    found = iter([replace(ROUNDS, timings=(ROUNDS.together,) * count) for count in (1, 2)])
    last = settle_doubts([Workload(2)], lambda *_: next(found), ROUNDS)
    assert len(last.timings) == 2


@pytest.mark.parametrize("rounds", [ROUNDS, HOPELESS])
def test_who_is_hopeless_is_not_asked_again(rounds: Rounds) -> None:
    ran: list[int] = []

    def run_again(number: int, before: Rounds) -> Rounds:
        ran.append(number)
        return HOPELESS

    assert settle_doubts([Workload(2), Workload(2)], run_again, rounds) is HOPELESS
    assert ran == ([] if rounds is HOPELESS else [0])
