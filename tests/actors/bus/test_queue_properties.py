"""Whatever workers do and whenever they do it, a queue loses no job, invents none, and counts its deliveries."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.bus.base import QueueFullError, QueueSpec
from actors.bus.memory import Job, WorkQueue

SPEC = QueueSpec(name="q", run_id="r", ack_wait_s=10.0, max_deliver=3, max_jobs=3)

NUMBER = st.integers(0, 7)
STEP = st.one_of(
    st.tuples(st.just("put"), NUMBER),
    st.tuples(st.sampled_from(["take", "take and fail", "take and die"]), NUMBER),
    st.tuples(st.sampled_from(["take", "ack", "nak", "nak", "nak later", "term", "refresh"]), NUMBER),
    st.tuples(st.just("wait"), st.sampled_from([1, 5, 10, 12])),
)


class World:
    def __init__(self) -> None:
        self.queue = WorkQueue(SPEC)
        self.now = 0.0
        self.owed: set[str] = set()
        self.done: set[str] = set()
        self.dead: set[str] = set()
        self.deliveries: list[tuple[Job, int, float]] = []
        """Job, attempt, and since when it has not been refreshed; negative: it was let go."""

    def step(self, what: str, number: int) -> None:
        match what:
            case "put":
                self.put(f"j{number}")
            case "take":
                self.take()
            case "take and fail" if self.take():
                self.say("nak", -1)
            case "take and die" if self.take():
                self.now += SPEC.ack_wait_s
            case "wait":
                self.now += number
            case "ack" | "nak" | "nak later" | "term" | "refresh" if self.deliveries:
                self.say(what, -1 - number % len(self.deliveries))
        self.bury()

    def put(self, name: str) -> None:
        self.bury()
        try:
            is_new = self.queue.put(name, b"", self.now)
        except QueueFullError:
            assert len(self.queue) == SPEC.max_jobs
            return
        assert is_new == (name not in self.owed)
        self.owed.add(name)

    def take(self) -> bool:
        job = self.queue.take(self.now)
        if job is None:
            return False
        assert job.msg_id in self.owed
        assert job.deliveries <= SPEC.max_deliver
        for held, _, since in self.deliveries:
            assert held is not job or self.now >= since + SPEC.ack_wait_s or since < 0, "two workers hold it"
        self.deliveries.append((job, job.deliveries, self.now))
        return True

    def say(self, what: str, index: int) -> None:
        job, attempt, since = self.deliveries[index]
        released = (job, attempt, -1.0)
        match what:
            case "ack":
                self.bury()
                if job in self.jobs():
                    self.owed.remove(job.msg_id)
                    self.done.add(job.msg_id)
                self.queue.finish(job, self.now)
                self.deliveries[index] = released
            case "nak" | "nak later":
                self.queue.hand_back(job, attempt, 5.0 if what == "nak later" else 0.0, self.now)
                self.deliveries[index] = released
            case "term":
                self.queue.give_up(job, attempt, "no", self.now)
                self.deliveries[index] = released
            case _:
                self.queue.refresh(job, attempt, self.now)
                if since >= 0 and self.now < since + SPEC.ack_wait_s:
                    self.deliveries[index] = (job, attempt, self.now)

    def jobs(self) -> list[Job]:
        return list(self.queue._jobs.values())

    def bury(self) -> None:
        while (letter := self.queue.take_dead_letter(self.now)) is not None:
            assert letter.msg_id in self.owed, "a dead letter of a job that was done or buried before"
            self.owed.remove(letter.msg_id)
            self.dead.add(letter.msg_id)


@settings(max_examples=500, deadline=None)
@given(steps=st.lists(STEP, max_size=50))
def test_every_job_is_in_the_end_done_or_dead(steps: list[tuple[str, int]]) -> None:
    world = World()
    for what, number in steps:
        world.step(what, number)
        assert {job.msg_id for job in world.jobs()} == world.owed
    for _ in range(len(world.owed) * SPEC.max_deliver + 1):
        world.now += SPEC.ack_wait_s
        while (job := world.queue.take(world.now)) is not None:
            world.queue.finish(job, world.now)
            world.owed.remove(job.msg_id)
        world.bury()
    assert not world.owed
    assert len(world.queue) == 0
    assert world.queue.next_due() is None
