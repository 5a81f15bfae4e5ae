"""Fair shares between queues (weighted deficit round robin), and a circuit breaker per queue.

It fails faster than others work, so it would take more jobs than they do and use up the tries of each (M. Nygard,
"Release It!", 2007, calls the remedy a circuit breaker). After a rest it takes one job on trial. The breaker is per
queue, since what is wrong may be one run's (its scorer's file is not on this host), and others must not wait for it.
No I/O and no clock.

The algorithm is that of M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995,
section 3): in each round every queue that has jobs is granted a quantum, and may be served as long as it has credit.
Two things differ here. What a job costs is known only when it is done, so a queue is served while it has any credit,
and may overdraw it ("surplus round robin": H. Adiseshu, G. Parulkar, G. Varghese, SIGCOMM 1996). And a worker has
several jobs in hand: each is charged an estimate when it is taken, and the difference when it is done. While a slot
asks, the queue that it asks first counts as charged, or all slots that ask at once would ask the same one.

Which queues have jobs cannot be seen; a job from one that was offered later says that those before it were empty.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to keep away, and for how long."""

    in_a_row: int = 3
    """Failures that may pass, without a success between them, before the worker rests."""
    rest_s: float = 10.0
    """First rest after those."""
    permanent_rest_s: float = 60.0
    """First rest after a failure that trying again cannot help."""
    longest_rest_s: float = 600.0
    """Rests become twice as long each time, up to this."""


class _Trouble:
    def __init__(self) -> None:
        self.failures = 0
        self.rest_s = 0.0
        self.until: float | None = None
        """End of the rest; None: there was none yet."""
        self.on_trial = False
        self.reason = ""


class Breaker:
    """Which queues a worker keeps away from, until when, and why. Times are the caller's, in seconds."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._troubles: dict[str, _Trouble] = {}

    @property
    def reasons(self) -> Mapping[str, str]:
        """What was wrong at the last failure, by queue that is kept away from or tried again."""
        return {queue: trouble.reason for queue, trouble in self._troubles.items() if trouble.until is not None}

    def admits(self, queue: str, now: float) -> bool:
        """Say whether a job may be taken: after a rest one, and further ones when it was done."""
        trouble = self._troubles.get(queue)
        if trouble is None or trouble.until is None:
            return True
        return trouble.until <= now and not trouble.on_trial

    def ends_of_rests(self, now: float) -> list[float]:
        """Return when queues that rest now will have rested."""
        untils = [trouble.until for trouble in self._troubles.values()]
        return [until for until in untils if until is not None and until > now]

    def took(self, queue: str) -> None:
        """Take note of a job that was taken: after a rest it is the trial."""
        trouble = self._troubles.get(queue)
        if trouble is not None and trouble.until is not None:
            trouble.on_trial = True

    def succeeded(self, queue: str) -> None:
        """Take note of a job that was done: nothing is wrong."""
        self._troubles.pop(queue, None)

    def undecided(self, queue: str) -> None:
        """Take note of a job that was dropped: the next one is the trial."""
        trouble = self._troubles.get(queue)
        if trouble is not None:
            trouble.on_trial = False

    def failed(self, queue: str, reason: str, now: float, *, permanent: bool) -> None:
        """Take note of a job that failed for reasons that are not its own.

        Args:
            queue: whose job.
            reason: in words, for people.
            now: the time.
            permanent: whether trying again here cannot help.
        """
        trouble = self._troubles.setdefault(queue, _Trouble())
        if trouble.until is not None and trouble.until > now:
            return  # it was in hand when the rest began
        trouble.failures += 1
        trouble.reason = reason
        if trouble.until is None and not permanent and trouble.failures < self._limits.in_a_row:
            return
        first_s = self._limits.permanent_rest_s if permanent else self._limits.rest_s
        trouble.rest_s = min(max(first_s, 2 * trouble.rest_s), self._limits.longest_rest_s)
        trouble.until = now + trouble.rest_s
        trouble.on_trial = False

    def keep_only(self, queues: tuple[str, ...]) -> None:
        """Forget all other queues."""
        for gone in self._troubles.keys() - set(queues):
            del self._troubles[gone]


LEAST_COST_S = 1e-3
"""What a job costs at least: a queue whose jobs cost nothing would be served for ever."""
QUANTUM_S = 0.01
"""Granted in a round to a queue of weight 1. Rounds are counted, not gone through, so small ones cost nothing; the
smaller they are, the more evenly jobs of different queues follow each other."""
FIRST_ESTIMATE_S = 1.0
"""What a job is taken to cost before any was done."""
_RECENT = 0.2
"""Weight of the latest cost in the running mean."""


class FairShares:
    """Says from which queue to take next, so that each gets seconds of work in proportion to its weight.

    Over any time in which two queues have jobs waiting, what they got, divided by their weights, differs by no more
    than the quantum and what their jobs in hand cost.
    """

    def __init__(self, *, quantum_s: float = QUANTUM_S) -> None:
        """Begin without queues.

        Args:
            quantum_s: see `QUANTUM_S`.
        """
        self._quantum_s = quantum_s
        self._accounts: dict[str, _Account] = {}
        """In the order in which they were served last."""
        self._mean_s = _Mean()
        self._claims = Counter[str]()

    def offer(self, weights: Mapping[str, int]) -> None:
        """Have exactly these queues. A new one begins without credit and without debts."""
        for gone in self._accounts.keys() - weights.keys():
            del self._accounts[gone]
        for queue, weight in weights.items():
            self._accounts.setdefault(queue, _Account()).quantum_s = self._quantum_s * max(1, weight)

    def order(self) -> tuple[str, ...]:
        """Return the queues in the order in which they are to be asked for a job."""
        return tuple(sorted(self._accounts, key=self._rounds_with_claims))

    def claim(self, queue: str) -> None:
        """Take note that somebody asks this queue first."""
        self._claims[queue] += 1

    def release(self, queue: str) -> None:
        """Take note that somebody who asked this queue first asks no longer."""
        self._claims[queue] -= 1

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """Take note that a job was taken.

        Args:
            queue: from which one.
            offered: who was asked, in this order.
        """
        account = self._accounts.pop(queue, None)
        if account is None:
            return
        rounds = account.rounds_to_wait()
        behind = set(offered[offered.index(queue) + 1 :]) if queue in offered else set()
        for name, other in self._accounts.items():
            other.grant(rounds)
            if name not in behind:
                other.forfeit()
        account.grant(rounds)
        account.take(self._mean_s.value)
        self._accounts[queue] = account

    def charge(self, queue: str, cost_s: float) -> None:
        """Take note that a job of this queue is done, and what it has cost."""
        cost_s = max(cost_s, LEAST_COST_S)
        self._mean_s.add(cost_s)
        account = self._accounts.get(queue)
        if account is not None:
            account.settle(cost_s)

    def _rounds_with_claims(self, queue: str) -> int:
        account = self._accounts[queue]
        return account.rounds_to_wait(self._claims[queue] * account.estimate_s(self._mean_s.value))


class _Mean:
    """A running mean."""

    def __init__(self) -> None:
        self.value = FIRST_ESTIMATE_S
        self.is_known = False

    def add(self, cost_s: float) -> None:
        self.value = (1 - _RECENT) * self.value + _RECENT * cost_s if self.is_known else cost_s
        self.is_known = True


class _Account:
    """What one queue may still spend."""

    def __init__(self) -> None:
        self.quantum_s = 1.0
        self._credit_s = 0.0
        self._mean_s = _Mean()
        self._in_hand: deque[float] = deque()
        """What was charged for the jobs in hand. Which of them is done does not matter: the sum does."""

    def rounds_to_wait(self, claimed_s: float = 0.0) -> int:
        """Return after how many more rounds it has credit beyond what is claimed."""
        credit_s = self._credit_s - claimed_s
        return 0 if credit_s > 0 else math.floor(-credit_s / self.quantum_s) + 1

    def grant(self, rounds: int) -> None:
        self._credit_s += rounds * self.quantum_s

    def forfeit(self) -> None:
        """It has no jobs: it keeps its debts, and no credit."""
        self._credit_s = min(self._credit_s, 0.0)

    def estimate_s(self, typical_s: float) -> float:
        return self._mean_s.value if self._mean_s.is_known else typical_s

    def take(self, typical_s: float) -> None:
        estimate_s = self.estimate_s(typical_s)
        self._in_hand.append(estimate_s)
        self._credit_s -= estimate_s

    def settle(self, cost_s: float) -> None:
        self._mean_s.add(cost_s)
        if self._in_hand:  # else it was taken before the queue was left out and came again
            self._credit_s += self._in_hand.popleft() - cost_s
