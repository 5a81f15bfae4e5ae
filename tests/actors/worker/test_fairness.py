from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import combinations, count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.fairness import FIRST_ESTIMATE_S, LEAST_COST_S, FairShares

QUANTUM_S = 1.0
Costs = dict[str, list[float]]

weights_of = st.integers(2, 5).flatmap(
    lambda n: st.fixed_dictionaries({f"q{number}": st.integers(1, 5) for number in range(n)})
)
costs = st.lists(st.floats(0.01, 30.0), min_size=1, max_size=6)


class Workers:
    """Slots that are always busy; the clock jumps from the end of one job to that of the next."""

    def __init__(self, weights: Mapping[str, int], costs: Costs, slots: int = 1) -> None:
        """Begin with queues that never run out of jobs, which cost this much, in turn."""
        self.shares = FairShares(quantum_s=QUANTUM_S)
        self.shares.offer(weights)
        self.spent = dict.fromkeys(weights, 0.0)
        self.taken = dict.fromkeys(weights, 0)
        self.empty: set[str] = set()
        self.now = 0.0
        self._costs = costs
        self._free = slots
        self._ends: list[tuple[float, int, str, float]] = []
        self._number = count()

    def take(self) -> None:
        """Fill the free slots."""
        while self._free:
            order = self.shares.order()
            assert set(order) == set(self.spent)
            queue = next(queue for queue in order if queue not in self.empty)
            costs = self._costs[queue]
            cost_s = costs[self.taken[queue] % len(costs)]
            self.taken[queue] += 1
            self.shares.took(queue, order)
            self._free -= 1
            heapq.heappush(self._ends, (self.now + cost_s, next(self._number), queue, cost_s))

    def finish(self) -> None:
        """Go on to the end of the next job."""
        self.now, _, queue, cost_s = heapq.heappop(self._ends)
        self.shares.charge(queue, cost_s)
        self.spent[queue] += cost_s
        self._free += 1

    def work(self, jobs: int) -> None:
        """Do so many jobs."""
        for _ in range(jobs):
            self.take()
            self.finish()


def assert_fair(weights: Mapping[str, int], spent: Mapping[str, float], bound_s: float) -> None:
    for one, other in combinations(weights, 2):
        gap_s = abs(spent[one] / weights[one] - spent[other] / weights[other])
        assert gap_s <= bound_s + 1e-6, (one, other, spent)


@given(weights=weights_of, data=st.data())
@settings(deadline=None)
def test_shares_are_within_one_jobs_cost_and_a_quantum_of_the_weights(
    weights: dict[str, int], data: st.DataObject
) -> None:
    given_costs = {queue: data.draw(costs) for queue in weights}
    workers = Workers(weights, given_costs)
    dearest_s = max(max(given_costs[queue]) / weights[queue] for queue in weights)
    for _ in range(100):
        workers.work(1)
        assert_fair(weights, workers.spent, QUANTUM_S + dearest_s)


@given(weights=weights_of, slots=st.integers(2, 16), data=st.data())
@settings(deadline=None)
def test_with_many_slots_shares_are_within_the_cost_of_what_is_in_hand(
    weights: dict[str, int], slots: int, data: st.DataObject
) -> None:
    given_costs = {queue: data.draw(costs) for queue in weights}
    workers = Workers(weights, given_costs, slots)
    dearest_s = max(max(each) for each in given_costs.values())
    for _ in range(100):
        workers.work(1)
        assert_fair(weights, workers.spent, QUANTUM_S + (slots + 1) * max(dearest_s, FIRST_ESTIMATE_S))


def test_jobs_in_hand_count_before_they_are_done() -> None:
    workers = Workers({"a": 1, "b": 1}, {"a": [100.0], "b": [100.0]}, slots=64)
    workers.take()
    assert workers.taken == {"a": 32, "b": 32}
    workers = Workers({"a": 3, "b": 1}, {"a": [100.0], "b": [100.0]}, slots=64)
    workers.take()
    assert workers.taken == {"a": 48, "b": 16}


@pytest.mark.parametrize("slots", [1, 8])
def test_weights_of_three_and_one_are_seconds_of_three_and_one_whatever_the_jobs_cost(slots: int) -> None:
    workers = Workers({"a": 3, "b": 1}, {"a": [0.5], "b": [7.0]}, slots)
    workers.work(4000)
    assert workers.spent["a"] / workers.spent["b"] == pytest.approx(3.0, rel=0.05)


@given(alone=st.integers(1, 200), cost_s=st.floats(0.1, 10.0), slots=st.integers(1, 8))
@settings(deadline=None)
def test_a_queue_that_was_empty_has_saved_no_credit(alone: int, cost_s: float, slots: int) -> None:
    weights = {"busy": 1, "late": 1}
    workers = Workers(weights, {"busy": [cost_s], "late": [cost_s]}, slots)
    workers.empty.add("late")
    workers.work(alone)
    before = dict(workers.spent)
    workers.empty.clear()
    for _ in range(10 * slots):
        workers.work(1)
        since = {queue: workers.spent[queue] - before[queue] for queue in before}
        assert_fair(weights, since, 2 * QUANTUM_S + (slots + 1) * max(cost_s, FIRST_ESTIMATE_S))
    assert before["late"] == 0.0


def test_slots_that_ask_at_once_ask_different_queues_first() -> None:
    shares = FairShares()
    shares.offer({"a": 3, "b": 1})
    first = []
    for _ in range(16):
        first.append(shares.order()[0])
        shares.claim(first[-1])
    assert first.count("a") == 12
    for queue in first:
        shares.release(queue)
    shares.took("a", ("a", "b"))
    assert shares.order()[0] == "b"


def test_a_queue_that_comes_late_is_served_next_and_then_in_its_share() -> None:
    shares = FairShares()
    shares.offer({"old": 1})
    for _ in range(100):
        shares.took("old", shares.order())
        shares.charge("old", 5.0)
    shares.offer({"old": 1, "new": 1})
    assert shares.order()[0] == "new"
    first = []
    for _ in range(20):
        order = shares.order()
        first.append(order[0])
        shares.took(order[0], order)
        shares.charge(order[0], 5.0)
    assert abs(first.count("old") - first.count("new")) <= 2


def test_no_queue_starves_beside_one_whose_jobs_cost_nothing() -> None:
    workers = Workers({"free": 5, "dear": 1}, {"free": [0.0], "dear": [1.0]})
    while workers.taken["dear"] < 3:
        workers.work(1)
        assert workers.taken["free"] <= 2 * 3 * 5 * QUANTUM_S / LEAST_COST_S


def test_a_job_of_a_queue_that_is_gone_is_charged_to_nobody() -> None:
    shares = FairShares()
    shares.offer({"a": 1, "b": 1})
    shares.took("a", shares.order())
    shares.offer({"b": 1})
    shares.charge("a", 100.0)
    shares.took("a", ("a", "b"))
    shares.offer({"a": 1, "b": 1})
    shares.charge("a", 1.0)
    assert set(shares.order()) == {"a", "b"}


@given(weights=weights_of, data=st.data())
def test_a_queue_that_is_kept_away_from_saves_no_credit(weights: dict[str, int], data: st.DataObject) -> None:
    shares = FairShares(quantum_s=QUANTUM_S)
    shares.offer(weights)
    away = "q0"
    others = tuple(queue for queue in weights if queue != away)
    for _ in range(data.draw(st.integers(1, 60))):
        offered = tuple(queue for queue in shares.order() if queue in others)
        shares.took(offered[0], offered)
        shares.charge(offered[0], 10.0)
    got = 0
    while shares.order()[0] == away:
        shares.took(away, shares.order())
        shares.charge(away, 10.0 * weights[away])
        got += 1
    assert got <= 2
