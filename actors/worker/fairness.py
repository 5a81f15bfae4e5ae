"""Fair shares between queues (weighted deficit round robin), and a circuit breaker per queue. No I/O, no clock.

Breaker (M. Nygard, "Release It!", 2007): a broken worker fails faster than others work, so it would use up the attempts
of every job. It therefore rests, then takes one trial job. There is one breaker per queue, since the fault may be
specific to one run.

Shares: deficit round robin (M. Shreedhar, G. Varghese, SIGCOMM 1995): in each round every queue with jobs gets a
quantum and is served while it has credit. A job's cost is known only when it is done, so a queue may overdraw ("surplus
round robin": H. Adiseshu et al., SIGCOMM 1996): it is charged an estimate first and the difference later. While a slot
polls, the queue it polls first counts as charged. A job from a later queue in the order shows that the queues before it
were empty.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to avoid a queue, and for how long."""

    in_a_row: int = 3
    """Consecutive failures before a rest."""
    rest_s: float = 10.0
    """Length of the first rest."""
    permanent_rest_s: float = 60.0
    """First rest after a permanent failure."""
    longest_rest_s: float = 600.0
    """Rests double up to this."""


class _Trouble:
    def __init__(self) -> None:
        self.failures = 0
        self.rest_s = 0.0
        self.until: float | None = None
        """End of the rest; None: there was none yet."""
        self.on_trial = False
        self.reason = ""


class Breaker:
    """Tracks which queues a worker avoids, until when, and why. The caller supplies times in seconds."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._troubles: dict[str, _Trouble] = {}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Last failure of each queue that is avoided or on trial."""
        return {queue: trouble.reason for queue, trouble in self._troubles.items() if trouble.until is not None}

    def admits(self, queue: str, now: float) -> bool:
        """Return True if a job may be taken: one after a rest, more once that one succeeded."""
        trouble = self._troubles.get(queue)
        if trouble is None or trouble.until is None:
            return True
        return trouble.until <= now and not trouble.on_trial

    def ends_of_rests(self, now: float) -> list[float]:
        """Return the end times of the current rests."""
        untils = [trouble.until for trouble in self._troubles.values()]
        return [until for until in untils if until is not None and until > now]

    def took(self, queue: str) -> None:
        """Record a taken job; after a rest it is the trial job."""
        trouble = self._troubles.get(queue)
        if trouble is not None and trouble.until is not None:
            trouble.on_trial = True

    def succeeded(self, queue: str) -> None:
        """Record a success and clear the failures."""
        self._troubles.pop(queue, None)

    def undecided(self, queue: str) -> None:
        """Record a dropped job; the next one is the trial job."""
        trouble = self._troubles.get(queue)
        if trouble is not None:
            trouble.on_trial = False

    def failed(self, queue: str, reason: str, now: float, *, permanent: bool) -> None:
        """Record a failure that is not the job's fault; `permanent` means that a retry here cannot help."""
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
"""Minimum cost of a job; otherwise a queue of free jobs would be served for ever."""
QUANTUM_S = 0.01
"""Credit per round for a queue of weight 1. Rounds are computed, not iterated; small quanta mix jobs more evenly."""
FIRST_ESTIMATE_S = 1.0
"""Assumed cost of a job before the first."""
_RECENT = 0.2
"""Weight of the latest cost in the running mean."""


class FairShares:
    """Orders queues so that each gets seconds of work in proportion to its weight.

    While two queues have jobs waiting, their shares divided by weight differ by at most the quantum and the cost of
    their jobs in hand.
    """

    def __init__(self, *, quantum_s: float = QUANTUM_S) -> None:
        self._quantum_s = quantum_s
        self._accounts: dict[str, _Account] = {}
        """Ordered by when they were last served."""
        self._mean_s = _Mean()
        self._claims = Counter[str]()

    def offer(self, weights: Mapping[str, int]) -> None:
        """Set the queues and their weights. A new queue starts with neither credit nor debt."""
        for gone in self._accounts.keys() - weights.keys():
            del self._accounts[gone]
        for queue, weight in weights.items():
            self._accounts.setdefault(queue, _Account()).quantum_s = self._quantum_s * max(1, weight)

    def order(self) -> tuple[str, ...]:
        """Return the queues in polling order."""
        return tuple(sorted(self._accounts, key=self._rounds_with_claims))

    def claim(self, queue: str) -> None:
        """Record that a slot polls this queue first."""
        self._claims[queue] += 1

    def release(self, queue: str) -> None:
        """Record that a slot no longer polls this queue first."""
        self._claims[queue] -= 1

    def took(self, queue: str, offered: Sequence[str]) -> None:
        """Record that `queue` yielded a job when the `offered` queues were polled in this order."""
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
        """Record the cost of a finished job of this queue."""
        cost_s = max(cost_s, LEAST_COST_S)
        self._mean_s.add(cost_s)
        account = self._accounts.get(queue)
        if account is not None:
            account.settle(cost_s)

    def _rounds_with_claims(self, queue: str) -> int:
        account = self._accounts[queue]
        return account.rounds_to_wait(self._claims[queue] * account.estimate_s(self._mean_s.value))


class _Mean:
    def __init__(self) -> None:
        self.value = FIRST_ESTIMATE_S
        self.is_known = False

    def add(self, cost_s: float) -> None:
        self.value = (1 - _RECENT) * self.value + _RECENT * cost_s if self.is_known else cost_s
        self.is_known = True


class _Account:
    def __init__(self) -> None:
        self.quantum_s = 1.0
        self._credit_s = 0.0
        self._mean_s = _Mean()
        self._in_hand: deque[float] = deque()
        """Estimated charges of the jobs in hand. Only their sum matters, not which job finishes."""

    def rounds_to_wait(self, claimed_s: float = 0.0) -> int:
        """Return the number of rounds until the credit exceeds the claims."""
        credit_s = self._credit_s - claimed_s
        return 0 if credit_s > 0 else math.floor(-credit_s / self.quantum_s) + 1

    def grant(self, rounds: int) -> None:
        self._credit_s += rounds * self.quantum_s

    def forfeit(self) -> None:
        """Drop an empty queue's credit, but keep its debt."""
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
