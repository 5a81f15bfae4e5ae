"""Workers whose bus is away: they keep their results, wait, and can be stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import anyio
import pytest
from structlog.testing import capture_logs

from actors.bus.base import NO_HEADERS
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from messages.base import BusError, Role
from tests.actors.builders import Timed, said, waiting, working
from tests.actors.words import open_build_run, submit_build

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class AwayBus(MemoryBus):
    """Fails whatever is asked of it while it is away; waits that had begun go on."""

    def __init__(self) -> None:
        super().__init__(lambda _: MemoryStore())
        self.away = False
        self.publishes = 0

    def check(self) -> None:
        if self.away:
            raise BusError("no connection")

    async def publish(
        self,
        run_id: str,
        payload: bytes,
        *,
        msg_id: str,
        role: Role = "planner",
        headers: Mapping[str, str] = NO_HEADERS,
        expected_last_decision: int | None = None,  # noqa: ARG002 - workers decide nothing
    ) -> int:
        self.publishes += 1
        self.check()
        return await super().publish(run_id, payload, msg_id=msg_id, role=role, headers=headers)

    async def pull(self, *queues: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.check()
        return await super().pull(*queues)

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        self.check()
        return await super().put(key, value, revision=revision, ttl_s=ttl_s)


async def test_a_result_is_kept_while_the_bus_is_away_and_the_job_is_done_once() -> None:
    bus, handle = AwayBus(), Timed(takes_s=5.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(1)
        bus.away = True
        await anyio.sleep(300)
        bus.away = False
        await said(bus, "r1", 1, within_s=31)
        await anyio.sleep(1)
        assert worker.member.presence.tally.done == 1
    assert handle.jobs == ["r1-x1"]
    assert await waiting(bus, "r1") == []


async def test_a_result_that_no_bus_takes_for_long_is_given_up_and_the_job_comes_back() -> None:
    bus, handle = AwayBus(), Timed(takes_s=5.0)
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    async with working(bus, handle) as worker:
        await anyio.sleep(1)
        bus.away = True
        await anyio.sleep(700)
        assert worker.member.presence.busy == ()
        bus.away = False
        await said(bus, "r1", 1, within_s=60)
    assert handle.jobs == ["r1-x1", "r1-x1"]
    assert bus.publishes < 60


async def test_workers_that_wait_outlive_a_bus_that_is_away_and_it_is_told_once_each() -> None:
    bus, handle = AwayBus(), Timed()
    await open_build_run(bus, "r1")
    bus.away = True
    with capture_logs() as logs:
        async with working(bus, handle, slots=3):
            await anyio.sleep(100)
            bus.away = False
            await submit_build(bus, 1, "r1")
            await said(bus, "r1", 1, within_s=5)
    assert Counter(line["event"] for line in logs if line["log_level"] == "warning") == {
        "the bus gives no jobs; trying again": 1,
        "cannot show that this process is there; trying again": 1,
    }


async def test_a_worker_that_is_stopped_while_the_bus_is_away_stops() -> None:
    bus = AwayBus()
    await open_build_run(bus, "r1")
    await submit_build(bus, 1, "r1")
    with anyio.fail_after(20):
        async with working(bus, Timed(takes_s=5.0)):
            await anyio.sleep(1)
            bus.away = True
            await anyio.sleep(10)
