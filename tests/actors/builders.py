"""Builders that are members of a shared bus, and what they say on the streams of its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus
from actors.worker.member import Member
from actors.worker.taking import Board, SharedQueues
from actors.worker.work import serve
from messages.codec import Body, decode_body
from messages.commands import BuildCandidate
from messages.events import CandidateBuilt
from messages.presence import WorkerState
from tests.actors.words import builds, built, presence

Handler = Callable[[BuildCandidate], Awaitable[CandidateBuilt]]


class Timed:
    """Builds anything in a second; notes what, and when it began."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.begun: list[tuple[str, float]] = []
        self._takes_s = takes_s

    async def __call__(self, command: BuildCandidate) -> CandidateBuilt:
        self.begun.append((command.job_id, anyio.current_time()))
        await anyio.sleep(self._takes_s)
        return built(command)

    @property
    def jobs(self) -> list[str]:
        return [job_id for job_id, _ in self.begun]


class Worker:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.returned = anyio.Event()


@asynccontextmanager
async def working(
    bus: Bus,
    handle: Handler,
    *,
    name: str = "builder-1",
    slots: int = 1,
    state: WorkerState = "ready",
    deadline_s: float = 3600.0,
) -> AsyncIterator[Worker]:
    """Have a process that builds for all runs on the board."""
    board = Board(bus)
    worker = Worker(Member(bus, presence(name, state=state)))
    queues = SharedQueues(board, role="builder", serves=lambda _: True)

    async def start(*, task_status: TaskStatus[None]) -> None:
        await serve(
            bus,
            queues,
            handle,
            expects=BuildCandidate,
            role="builder",
            slots=slots,
            deadline_s=lambda _: deadline_s,
            member=worker.member,
            task_status=task_status,
        )
        worker.returned.set()

    async with anyio.create_task_group() as tasks:
        await tasks.start(board.follow)
        await tasks.start(worker.member.keep)
        await tasks.start(start)
        yield worker
        tasks.cancel_scope.cancel()


async def said(bus: Bus, run_id: str, count: int, within_s: float = 1000.0) -> dict[str, Body]:
    """Return the first events of a run by id, once there are so many."""
    found: dict[str, Body] = {}
    events = bus.events(run_id)
    with anyio.fail_after(within_s):
        async for posted in events:
            found[posted.msg_id] = decode_body(posted.payload)
            if len(found) == count:
                break
    await events.aclose()
    return found


async def waiting(bus: Bus, run_id: str) -> list[tuple[str, int]]:
    """Return the jobs that can be had now, with their attempts."""
    found = []
    with anyio.move_on_after(0.1):
        while True:
            delivery = await bus.pull(builds(run_id))
            found.append((delivery.msg_id, delivery.attempt))
    return found
