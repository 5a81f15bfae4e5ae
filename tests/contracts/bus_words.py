"""Words that the parts of the bus contract share."""

from __future__ import annotations

import anyio
import pytest

from actors.bus.base import Bus, DeadLetter, Delivery

RUN = "r1"
QUEUE = "ks.job.write.default.any.r1"


async def pull(bus: Bus, ack_wait_s: float, queue: str = QUEUE) -> Delivery:
    """Get the next job, which is there or comes back within a time-out."""
    with anyio.fail_after(3 * ack_wait_s):
        return await bus.pull(queue)


async def assert_idle(bus: Bus, wait_s: float, queue: str = QUEUE) -> None:
    """Make sure that nothing is delivered for a while."""
    with anyio.move_on_after(wait_s):
        delivery = await bus.pull(queue)
        pytest.fail(f"{delivery.msg_id} was delivered (attempt {delivery.attempt})")


async def dead_letter(bus: Bus, ack_wait_s: float) -> DeadLetter:
    """Get the run's next dead letter."""
    with anyio.fail_after(5 * ack_wait_s):
        return await bus.next_dead_letter(RUN)
