"""Reading an event stream without a consumer, as those do who may only read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from actors.bus.base import Posted, UnknownQueueError
from actors.bus.nats import NatsBus, open_nats
from tests.actors.bus.nats.conftest import Server

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"
PATIENCE_S = 20.0


async def take(events: AsyncGenerator[Posted, None], count: int) -> list[Posted]:
    with anyio.fail_after(PATIENCE_S):
        return [await anext(events) for _ in range(count)]


async def test_who_may_only_read_sees_what_all_others_see_and_follows(
    bus: NatsBus, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.bus.nats.connection._BATCH", 4)
    await bus.open_stream(RUN)
    for number in range(10):
        await bus.publish(RUN, b"%d" % number * (1 << 20 if number == 5 else 1), msg_id=f"e{number}", role="coder")
    async with open_nats(server.options(role="watcher")) as watcher:
        seen, read = watcher.events(RUN), bus.events(RUN)
        assert await take(seen, 10) == await take(read, 10)
        await bus.publish(RUN, b"later", msg_id="later", role="builder")
        [last] = await take(seen, 1)
        assert (last.payload, last.role) == (b"later", "builder")
        await server.crash()
        await bus.publish(RUN, b"after the crash", msg_id="after", role="builder")
        assert [posted.msg_id for posted in await take(seen, 1)] == ["after"]
        late = watcher.events(RUN, after=last.seq)
        assert [posted.msg_id for posted in await take(late, 1)] == ["after"]
        for events in (seen, read, late):
            await events.aclose()


async def test_who_may_only_read_is_told_of_a_run_that_is_not_there(bus: NatsBus, server: Server) -> None:
    async with open_nats(server.options(role="watcher")) as watcher:
        with pytest.raises(UnknownQueueError):
            await anext(watcher.events("nobody"))
