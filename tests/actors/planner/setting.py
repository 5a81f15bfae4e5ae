"""A run on a bus in memory with workers, for tests of the planners that lead it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from actors.bus.base import Bus, UnknownQueueError
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.llm.base import Answer, Request, ScriptedModel
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from actors.planner.history import fold
from actors.planner.jobs import queues_of
from actors.planner.leadership import lead
from messages.base import ModelError
from messages.codec import Body, decode_body, encode
from messages.events import RunStarted
from messages.facts import Decided, RunFinished
from messages.presence import RunCard, decode_card, lease_key, run_key
from messages.settings import Budget, SearchSettings
from tests.actors.planner.hands import Hands
from tests.actors.planner.rig import DESCRIPTION, TARGET, TASK, planner_answers

RUN = "rig"
LEASE = lease_key(RUN)


class Setting:
    """A run on a bus with workers, and any number of planners for it."""

    def __init__(self, rounds: int = 30, *, planner_s: float = 3.0, budget: Budget | None = None) -> None:
        store = MemoryStore()
        self.bus = MemoryBus(lambda _: store)
        self.started = RunStarted(
            run_id=RUN,
            task=TASK,
            description=DESCRIPTION,
            target=TARGET,
            settings=SearchSettings(branches=4, budget=budget or Budget(max_rounds=rounds)),
            seed=7,
        )
        self.hands = Hands(self.bus, self.started)
        self.asked: list[tuple[str, str]] = []
        self.fails_next = 0
        answers = planner_answers(news=4)

        def answer(request: Request) -> str:
            return answers(request)

        self._model = ScriptedModel(answer, latency_s=planner_s)
        self.ended: dict[str, RunFinished] = {}

    async def complete(self, request: Request) -> Answer:
        self.asked.append((request.request_id, request.prompt))
        if self.fails_next:
            self.fails_next -= 1
            raise ModelError("overloaded")
        return await self._model.complete(request)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def begin(self) -> None:
        await self.bus.open_stream(RUN)
        await self.bus.publish(RUN, encode(self.started), msg_id=f"{RUN}.started")

    async def lead(self, holder: str, *, bus: Bus | None = None) -> None:
        self.ended[holder] = await lead(bus or self.bus, self, run_id=RUN, holder=holder, watches_workers=False)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[anyio.abc.TaskGroup]:
        """Have the run begun and its workers at work."""
        await self.begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.hands.work)
            yield tasks
            tasks.cancel_scope.cancel()

    async def bodies(self) -> list[tuple[int, Body]]:
        last, found = await self.bus.open_stream(RUN), []
        events = self.bus.events(RUN)
        async for posted in events:
            found.append((posted.seq, decode_body(posted.payload)))
            if posted.seq == last:
                break
        await events.aclose()
        return found

    async def decisions(self) -> list[Decided]:
        return [body for _, body in await self.bodies() if isinstance(body, Decided)]

    async def until_rounds(self, rounds: int) -> None:
        with anyio.fail_after(1000):
            while True:
                if fold(await self.bodies()).state.rounds >= rounds:
                    return
                await anyio.sleep(0.5)

    async def until_ended(self, holder: str) -> None:
        with anyio.fail_after(1000):
            while True:
                if holder in self.ended:
                    return
                await anyio.sleep(1.0)

    async def card(self) -> RunCard:
        entry = await self.bus.get(run_key(RUN))
        card = decode_card(entry.value) if entry else None
        assert card is not None
        return card

    async def holder(self) -> str:
        entry = await self.bus.get(LEASE)
        return entry.value.decode() if entry else ""

    async def assert_whole(self) -> None:
        """The run is over; every event was decided on once, every job done once, and nothing is left on the bus."""
        bodies = await self.bodies()
        state = fold(bodies).state
        assert (state.finished, state.stopped_by, state.rounds) == (True, "rounds", state.settings.budget.max_rounds)
        causes = Counter(decision.cause for decision in await self.decisions())
        assert set(causes.values()) == {1}, "an event was decided on twice"
        assert set(self.hands.done.values()) == {1}, "a job was done twice"
        state = SearchState()
        for decision in await self.decisions():
            for fact in decision.facts:
                state = evolve(state, fact)
            assert decision.state_hash in (None, state_hash(state)), "decided on another state than that of the stream"
        assert await self.holder() == ""
        assert (await self.card()).state == "finished"
        for queue in queues_of(self.started):
            with pytest.raises(UnknownQueueError):
                await self.bus.submit(queue, b"", msg_id="x")
