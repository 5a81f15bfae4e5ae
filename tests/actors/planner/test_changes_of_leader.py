"""What becomes of a run whose leader changes or whose bus is away: its questions, its time, and what was said to it."""

from __future__ import annotations

import itertools
from collections import Counter

import anyio
import pytest

from actors.bus.base import Bus
from actors.bus.memory import MemoryBus
from actors.planner.history import fold
from messages.base import BusError
from messages.codec import encode
from messages.events import ClockTicked, ContinueRequested, Event, JobLost, PauseRequested, RunResumed, StopRequested
from messages.facts import PlanRequested, TimeNoted
from messages.settings import Budget
from tests.actors.planner.setting import RUN, Setting

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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
