"""Leadership of a run on a virtual clock: taken, kept, lost, and given back."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from actors.llm.base import Answer, Request, ScriptedModel
from actors.planner.history import fold
from actors.planner.leadership import LeaseTerms, lead
from messages.codec import encode
from messages.events import ContinueRequested, PauseRequested
from messages.facts import Decided, RunPaused, TimeNoted
from tests.actors.planner.rig import TASK
from tests.actors.planner.setting import LEASE, RUN, Setting

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

TERMS = LeaseTerms()


async def test_a_run_is_led_to_its_end_and_nothing_is_left_on_the_bus() -> None:
    setting = Setting()
    async with setting.going():
        await setting.lead("p1")
    assert setting.ended["p1"].stopped_by == "rounds"
    await setting.assert_whole()
    card = await setting.card()
    assert (card.planner, card.stopped_by, card.rounds, card.task_name) == ("p1", "rounds", 30, TASK.name)
    ended = setting.ended["p1"]
    assert (card.credit, card.speedup) == (ended.credit, ended.speedup)


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
