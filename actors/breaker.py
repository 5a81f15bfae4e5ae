"""A circuit breaker per queue: a worker whose surroundings are broken keeps away from jobs that it would only fail.

It fails faster than others work, so it would take more jobs than they do and use up the tries of each (M. Nygard,
"Release It!", 2007, calls the remedy a circuit breaker). After a rest it takes one job on trial. The breaker is per
queue, since what is wrong may be one run's (its scorer's file is not on this host), and others must not wait for it.
No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

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
