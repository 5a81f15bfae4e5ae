"""One work queue as a state machine: who has which job, until when, and what has become hopeless.

No I/O, no waiting and no clock of its own: every method takes the present time, and first lets happen what was due.
So a time-out counts from its deadline even if nobody looked at that moment.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from itertools import count

from actors.bus.base import NO_HEADERS, DeadLetter, QueueFullError, QueueSpec


class Place(Enum):
    """Where a job is."""

    WAITING = auto()
    DELAYED = auto()
    HELD = auto()
    GONE = auto()


class Job:
    """A job and its whereabouts. Only its queue writes to it."""

    __slots__ = ("deliveries", "due", "headers", "msg_id", "payload", "place")

    def __init__(self, msg_id: str, payload: bytes, headers: Mapping[str, str]) -> None:
        self.msg_id = msg_id
        self.payload = payload
        self.headers = headers
        self.place = Place.WAITING
        self.deliveries = 0
        self.due = 0.0
        """Held: when its holder counts as dead. Delayed: when it may be given out again."""


class WorkQueue:
    """The jobs of one queue. First in, first out; what comes back goes before what was never given out."""

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self._jobs: dict[str, Job] = {}
        self._new: deque[Job] = deque()
        self._returned: deque[Job] = deque()
        self._timers: list[tuple[float, int, Job]] = []
        """Heap. A timer counts only while its job is held or delayed with that very `due`."""
        self._order = count()
        self._dead: deque[DeadLetter] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, msg_id: str, payload: bytes, now: float, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """Add a job; False if its id is here already.

        Raises:
            QueueFullError: there is no room.
        """
        self._let_happen(now)
        if msg_id in self._jobs:
            return False
        if len(self._jobs) >= self.spec.max_jobs:
            raise QueueFullError(f"queue {self.spec.name!r} is full ({self.spec.max_jobs} jobs); submit again later")
        job = self._jobs[msg_id] = Job(msg_id, payload, dict(headers))
        self._new.append(job)
        return True

    def take(self, now: float) -> Job | None:
        """Give out the next job, if there is one."""
        self._let_happen(now)
        for line in (self._returned, self._new):
            while line:
                job = line.popleft()
                if job.place is Place.WAITING:
                    job.place = Place.HELD
                    job.deliveries += 1
                    self._arm(job, now + self.spec.ack_wait_s)
                    return job
        return None

    def finish(self, job: Job, now: float) -> None:
        """Take a job as done, whoever says so and wherever it is by now: its result is durable."""
        self._let_happen(now)
        if job.place is not Place.GONE:
            self._remove(job)

    def hand_back(self, job: Job, attempt: int, delay_s: float, now: float) -> None:
        """Let a job be given out again after a delay, if delivery `attempt` still holds it."""
        self._let_happen(now)
        if not self._holds(job, attempt):
            return
        if job.deliveries >= self.spec.max_deliver:
            self._bury(job, "max_deliver")
        elif delay_s > 0:
            job.place = Place.DELAYED
            self._arm(job, now + delay_s)
        else:
            self._return(job)

    def give_up(self, job: Job, attempt: int, reason: str, now: float) -> None:
        """Dead-letter a job, if delivery `attempt` still holds it."""
        self._let_happen(now)
        if self._holds(job, attempt):
            self._bury(job, reason)

    def refresh(self, job: Job, attempt: int, now: float) -> None:
        """Start the ack time-out anew, if delivery `attempt` still holds the job."""
        self._let_happen(now)
        if self._holds(job, attempt):
            self._arm(job, now + self.spec.ack_wait_s)

    def clear(self) -> None:
        """Forget all jobs; what their holders say later changes nothing."""
        for job in self._jobs.values():
            job.place = Place.GONE
        self._jobs.clear()
        self._new.clear()
        self._returned.clear()
        self._timers.clear()

    def take_dead_letter(self, now: float) -> DeadLetter | None:
        """Hand over the next job that nobody could do, if there is one; each is given once."""
        self._let_happen(now)
        return self._dead.popleft() if self._dead else None

    def next_due(self) -> float | None:
        """Return when something will happen by itself; None if nothing will."""
        while self._timers:
            due, _, job = self._timers[0]
            if self._counts(due, job):
                return due
            heapq.heappop(self._timers)
        return None

    def _let_happen(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, job = heapq.heappop(self._timers)
            if job.place is Place.HELD and job.deliveries >= self.spec.max_deliver:
                self._bury(job, "max_deliver")
            else:
                self._return(job)

    def _holds(self, job: Job, attempt: int) -> bool:
        return job.place is Place.HELD and job.deliveries == attempt

    def _counts(self, due: float, job: Job) -> bool:
        return job.due == due and job.place in (Place.HELD, Place.DELAYED)

    def _arm(self, job: Job, due: float) -> None:
        job.due = due
        heapq.heappush(self._timers, (due, next(self._order), job))

    def _return(self, job: Job) -> None:
        job.place = Place.WAITING
        self._returned.append(job)

    def _bury(self, job: Job, reason: str) -> None:
        self._remove(job)
        self._dead.append(
            DeadLetter(
                queue=self.spec.name,
                msg_id=job.msg_id,
                payload=job.payload,
                deliveries=job.deliveries,
                reason=reason,
            )
        )

    def _remove(self, job: Job) -> None:
        job.place = Place.GONE
        del self._jobs[job.msg_id]
