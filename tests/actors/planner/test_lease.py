"""Leadership of a run on a virtual clock: taken, kept, lost, given back, and what becomes of the run meanwhile."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from structlog.testing import capture_logs

from actors.bus.base import Bus, UnknownQueueError
from actors.bus.memory import MemoryBus
from actors.bus.store import MemoryStore
from actors.llm.base import Answer, Request
from actors.llm.scripted import ScriptedModel
from actors.planner.core.entries import state_hash
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.history import fold
from actors.planner.jobs import queues_of
from actors.planner.lease import LeaseTerms, lead
from messages.codec import Body, decode_body, encode
from messages.errors import BusError, ModelError
from messages.events import (
    ClockTicked,
    ContinueRequested,
    Event,
    JobLost,
    PauseRequested,
    RunResumed,
    RunStarted,
    StopRequested,
)
from messages.facts import Decided, PlanRequested, RunFinished, RunPaused, TimeNoted
from messages.presence import RunCard, decode_card, lease_key, run_key
from messages.settings import Budget, SearchSettings
from tests.actors.planner.hands import Hands
from tests.actors.planner.rig import DESCRIPTION, TARGET, TASK, planner_answers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

RUN = "rig"
LEASE = lease_key(RUN)
TERMS = LeaseTerms()


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


async def test_a_run_is_led_to_its_end_and_nothing_is_left_on_the_bus() -> None:
    setting = Setting()
    async with setting.going():
        await setting.lead("p1")
    assert setting.ended["p1"].stopped_by == "rounds"
    await setting.assert_whole()
    card = await setting.card()
    assert (card.planner, card.stopped_by, card.rounds, card.task_name) == ("p1", "rounds", 30, TASK.name)
    assert card.credit == setting.ended["p1"].credit


async def test_the_card_follows_the_run_and_its_pauses() -> None:
    setting = Setting()
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(5)
        await anyio.sleep(2.0)
        card = await setting.card()
        assert (card.state, card.planner, card.max_rounds) == ("running", "p1", 30)
        assert 5 <= card.rounds < 30
        await setting.bus.publish(RUN, encode(PauseRequested(reason="lunch")), msg_id="pause")
        await anyio.sleep(60.0)
        assert (await setting.card()).state == "paused"
        await setting.bus.publish(RUN, encode(ContinueRequested()), msg_id="continue")
        await anyio.sleep(2.5)
        assert (await setting.card()).state == "running"


async def test_one_leads_and_the_others_return_when_the_run_is_over() -> None:
    setting = Setting()
    async with setting.going(), anyio.create_task_group() as planners:
        for holder in ("p1", "p2", "p3"):
            planners.start_soon(setting.lead, holder)
    await setting.assert_whole()
    first, *others = setting.ended.values()
    assert others == [first, first]
    assert (await setting.card()).planner == next(iter(setting.ended)), "who comes last has nothing to say"


async def test_a_lease_is_renewed_for_as_long_as_its_holder_leads() -> None:
    setting = Setting(rounds=200)
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await anyio.sleep(1.0)
        for _ in range(60):
            await anyio.sleep(1.0)
            assert await setting.holder() == "p1"


async def test_a_standby_takes_over_when_the_lease_of_a_dead_leader_expires() -> None:
    setting = Setting()
    await setting.begin()
    await setting.bus.put(LEASE, b"dead", revision=0, ttl_s=TERMS.ttl_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(setting.hands.work)
        tasks.start_soon(setting.lead, "p2")
        await anyio.sleep(TERMS.ttl_s - 0.1)
        assert await setting.decisions() == []
        await anyio.sleep(1.1)
        assert await setting.decisions()
        await setting.until_ended("p2")
        tasks.cancel_scope.cancel()
    await setting.assert_whole()


async def test_a_leader_that_is_stopped_gives_its_lease_back_at_once() -> None:
    setting = Setting()
    async with setting.going() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as planners:
                planners.start_soon(setting.lead, "p1")
                await setting.until_rounds(10)
                first.cancel()
        assert await setting.holder() == ""
        tasks.start_soon(setting.lead, "p2")
        await anyio.sleep(0.1)
        assert await setting.holder() == "p2"
        await setting.until_ended("p2")
    await setting.assert_whole()


async def test_a_waiting_standby_that_is_stopped_leaves_the_leaders_lease_alone() -> None:
    setting = Setting()
    await setting.begin()
    await setting.bus.put(LEASE, b"p1", revision=0, ttl_s=TERMS.ttl_s)
    with anyio.move_on_after(3.0):
        await setting.lead("p2")
    assert await setting.holder() == "p1"


async def test_a_leader_that_crashes_gives_its_lease_back() -> None:
    setting = Setting()
    await setting.begin()

    class BrokenModel(ScriptedModel):
        async def complete(self, request: Request) -> Answer:
            raise RuntimeError(f"a bug in {request.request_id}")

    with pytest.raises(ExceptionGroup) as caught:
        await lead(setting.bus, BrokenModel(lambda _: ""), run_id=RUN, holder="p1")
    assert caught.group_contains(RuntimeError, match="a bug")
    assert await setting.holder() == ""


async def test_a_leader_whose_lease_somebody_else_has_stops_and_stands_by() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(10)
        entry = await setting.bus.get(LEASE)
        assert entry is not None
        with capture_logs() as logs:
            await setting.bus.put(LEASE, b"p2", revision=entry.revision, ttl_s=60)
            await anyio.sleep(TERMS.renew_s + 0.1)
            assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["leads no longer; stands by"]
            before = len(await setting.decisions())
            await anyio.sleep(40)
            assert len(await setting.decisions()) == before, "it goes on without a lease"
        assert await setting.holder() == "p2"
        await setting.until_ended("p1")
    await setting.assert_whole()


async def test_another_planners_decision_on_the_same_event_is_never_taken_for_ones_own() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(10)
        last = fold(await setting.bodies()).last_decision
        said = await setting.bus.publish(RUN, encode(PauseRequested(reason="-")), msg_id="said")
        foreign = Decided(cause=said, facts=(RunPaused(reason="-"), TimeNoted(elapsed_s=999.0)))
        await setting.bus.publish(RUN, encode(foreign), msg_id=f"{RUN}.d{said}", expected_last_decision=last)
        await anyio.sleep(30.0)
        state = fold(await setting.bodies()).state
        assert (state.paused, state.elapsed_s) == (True, 999.0)
        await setting.bus.publish(RUN, encode(ContinueRequested()), msg_id="on")
        await setting.until_ended("p1")
    await setting.assert_whole()


async def test_a_leader_that_only_reads_of_another_planners_decision_stops_at_once() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(10)
        said = await setting.bus.publish(RUN, encode(PauseRequested(reason="-")), msg_id="said")
        await anyio.sleep(30.0)
        with capture_logs() as logs:
            foreign = Decided(cause=said, facts=(TimeNoted(elapsed_s=999.0),))
            last = fold(await setting.bodies()).last_decision
            await setting.bus.publish(RUN, encode(foreign), msg_id="foreign", expected_last_decision=last)
            await anyio.sleep(0.1)
        assert [line["event"] for line in logs] == ["leads no longer; stands by"]


async def test_an_open_question_is_asked_again_with_the_same_prompt() -> None:
    setting = Setting(rounds=60, planner_s=8.0)
    async with setting.going() as tasks:
        for holder in ("p1", "p2", "p3", "p4"):
            with anyio.CancelScope() as leadership:
                tasks.start_soon(_cancel_amid_question, setting, leadership)
                await setting.lead(holder)
        await setting.lead("p5")
    await setting.assert_whole()
    prompts: dict[str, set[str]] = {}
    for job_id, prompt in setting.asked:
        prompts.setdefault(job_id, set()).add(prompt)
    again = [job_id for job_id, count in Counter(job_id for job_id, _ in setting.asked).items() if count > 1]
    assert len(again) >= 2
    assert {job_id: len(prompts[job_id]) for job_id in again} == dict.fromkeys(again, 1)


async def _cancel_amid_question(setting: Setting, leadership: anyio.CancelScope) -> None:
    """End a leadership when its second question, or its first new one, has been open for a while."""
    asked = len(setting.asked)
    while len(setting.asked) < asked + 2:  # noqa: ASYNC110 - the model is asked by another task
        await anyio.sleep(0.5)
    await anyio.sleep(4.0)
    leadership.cancel()


async def test_an_endpoint_that_is_away_at_a_takeover_costs_no_question() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        with anyio.CancelScope() as leadership:
            tasks.start_soon(_cancel_after, leadership, 20.0)
            await setting.lead("p1")
        assert fold(await setting.bodies()).state.usage_planner.calls
        setting.fails_next = 3
        await setting.lead("p2")
    await setting.assert_whole()
    assert setting.fails_next == 0
    assert not [body for _, body in await setting.bodies() if isinstance(body, JobLost)]


async def _cancel_after(scope: anyio.CancelScope, delay_s: float) -> None:
    await anyio.sleep(delay_s)
    scope.cancel()


async def test_a_bus_that_is_away_is_waited_for() -> None:
    setting = Setting(rounds=60)
    bus = AwayBus(setting.bus)
    async with setting.going() as tasks:
        tasks.start_soon(_lead_over, setting, bus)
        await setting.until_rounds(10)
        bus.is_away = True
        await anyio.sleep(30.0)
        assert await setting.holder() == "", "the lease of a leader that cannot renew it expires"
        bus.is_away = False
        await setting.until_ended("p1")
    await setting.assert_whole()


async def test_a_bus_that_fails_whenever_the_run_is_led_is_an_error() -> None:
    setting = Setting()
    await setting.begin()
    bus = AwayBus(setting.bus, refuses={"publish"})
    bus.is_away = True
    with pytest.raises(BusError, match="away: publish"):
        await setting.lead("p1", bus=bus)
    assert await setting.holder() == ""


async def _lead_over(setting: Setting, bus: Bus) -> None:
    await setting.lead("p1", bus=bus)


class AwayBus(MemoryBus):
    """A planner's connection to a bus, which can be cut: what it says then is not heard."""

    def __init__(self, bus: MemoryBus, refuses: frozenset[str] | set[str] = frozenset()) -> None:
        self.__dict__.update(bus.__dict__)
        self._refuses = refuses or {"publish", "submit", "get", "put", "delete", "open_stream", "drop_queues"}
        self.is_away = False

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_") or name in ("is_away",) or not self.is_away or name not in self._refuses:
            return super().__getattribute__(name)

        async def refuse(*_: object, **__: object) -> None:
            raise BusError(f"away: {name}")

        return refuse


async def test_time_counts_on_and_no_tick_is_taken_for_anothers() -> None:
    setting = Setting(budget=Budget(max_rounds=1000, wall_clock_s=100.0))
    async with setting.going() as tasks:
        for holder in (f"p{number}" for number in itertools.count()):
            with anyio.CancelScope() as leadership:
                tasks.start_soon(_cancel_after, leadership, 22.0)
                await setting.lead(holder)
            if holder in setting.ended:
                break
        assert setting.ended[holder].stopped_by == "wall_clock"
    bodies = await setting.bodies()
    ticks = [body.elapsed_s for _, body in bodies if isinstance(body, ClockTicked)]
    assert ticks == sorted(set(ticks))
    assert len(ticks) >= 20, "ticks of a later leadership were taken for those of an earlier one"
    noted = [
        fact.elapsed_s
        for decision in await setting.decisions()
        for fact in decision.facts
        if isinstance(fact, TimeNoted)
    ]
    assert noted == ticks


async def test_a_limit_of_time_that_a_run_gets_when_it_is_resumed_ends_it() -> None:
    setting = Setting(rounds=1000)
    async with setting.going() as tasks:
        with anyio.CancelScope() as leadership:
            tasks.start_soon(_cancel_after, leadership, 10.0)
            await setting.lead("p1")
        resumed = RunResumed(run_id=RUN, budget=Budget(max_rounds=1000, wall_clock_s=50.0))
        await setting.bus.publish(RUN, encode(resumed), msg_id=f"{RUN}.resumed")
        with anyio.fail_after(200):
            await setting.lead("p2")
    assert setting.ended["p2"].stopped_by == "wall_clock"


async def test_what_led_to_nothing_leads_to_nothing_after_a_takeover_either() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as planners:
                planners.start_soon(setting.lead, "p1")
                await setting.until_rounds(5)
                said: tuple[Event, ...] = (PauseRequested(reason="a"), PauseRequested(reason="b"), ContinueRequested())
                for number, body in enumerate(said):
                    await setting.bus.publish(RUN, encode(body), msg_id=f"said{number}")
                await setting.until_rounds(10)
                first.cancel()
        tasks.start_soon(setting.lead, "p2")
        await setting.until_ended("p2")
    await setting.assert_whole()


async def test_a_run_that_is_over_is_not_led_again_before_it_is_resumed() -> None:
    setting = Setting(rounds=60)
    async with setting.going() as tasks:
        tasks.start_soon(setting.lead, "p1")
        await setting.until_rounds(5)
        await setting.bus.publish(RUN, encode(StopRequested(reason="enough")), msg_id="stop")
        await setting.until_ended("p1")
        assert setting.ended["p1"].stopped_by == "interrupted"
        length = len(await setting.bodies())
        await setting.lead("p2")
        assert setting.ended["p2"] == setting.ended["p1"]
        assert len(await setting.bodies()) == length
        await setting.bus.publish(RUN, encode(RunResumed(run_id=RUN)), msg_id="on")
        await setting.lead("p3")
    await setting.assert_whole()
    assert [
        fact for decision in await setting.decisions() for fact in decision.facts if isinstance(fact, PlanRequested)
    ]
