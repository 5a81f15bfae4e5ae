"""Words that the tests of a bus on a real server have in common."""

from __future__ import annotations

from contextlib import aclosing

import anyio

from actors.bus.base import Bus, QueueSpec
from tests.contracts.bus_streams import event
from tests.contracts.bus_words import QUEUE, RUN

OTHER = "ks.job.write.default.any.r2"
PATIENCE_S = 20.0


def spec(**changed: object) -> QueueSpec:
    fields: dict[str, object] = {"name": QUEUE, "run_id": RUN, "ack_wait_s": 1.0, "max_jobs": 500} | changed
    return QueueSpec(**fields)  # type: ignore[arg-type]  # fields by name


async def work(bus: Bus, done: list[str]) -> None:
    while True:
        delivery = await bus.pull(QUEUE)
        done.append(delivery.msg_id)
        await anyio.sleep(0.005)
        await bus.publish(RUN, event(len(done)), msg_id=f"{delivery.msg_id}.r", role="coder")
        await delivery.ack()


async def follow(bus: Bus, count: int) -> list[str]:
    found = []
    async with aclosing(bus.events(RUN)) as events:
        async for posted in events:
            found.append(posted.msg_id)
            if len(found) == count:
                break
    return found
