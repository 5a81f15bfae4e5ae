"""A session over a bus that others share: led, followed, recorded, taken over; what did not begin leaves nothing."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.journal import read_journal
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.llm.base import ScriptedModel
from actors.planner.leadership import LeaseTerms, lead
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.errors import single_error
from ksearch_async.fleet.nats_runs import WORKERS, OwnWorkers, Post, claimed, lead_distributed, resumption
from ksearch_async.fleet.status import ask, has_stream, live_leader, read_chronicle
from ksearch_async.runs.resume import Session, StopSwitch, check_messages_stay
from ksearch_async.settings.run_config import RunConfig
from messages.base import ConfigError, Role
from messages.codec import Record, encode
from messages.events import ContinueRequested, PauseRequested, RunResumed, StopRequested
from messages.facts import RunContinued, RunPaused
from messages.presence import lease_key
from messages.settings import Budget, SearchSettings
from tests.chaos.checks import facts_of, problems_of_run
from tests.ksearch_async.runs.test_launch import answered, new_session
from tests.ksearch_async.stories import FAST, RUN_ID, story

pytestmark = pytest.mark.anyio

TERMS = LeaseTerms(ttl_s=2, renew_s=0.2, retry_s=0.1, poll_s=0.1)
LONG = SearchSettings(branches=2, stagnation_window=2, budget=Budget(max_rounds=40))


def new_bus() -> MemoryBus:
    store = MemoryStore()
    return MemoryBus(lambda _: store)


def new_post(bus: MemoryBus, *, latency_s: float = 0.02, roles: tuple[Role, ...] = WORKERS) -> Post:
    evaluator = SimulatedEvaluator(lambda _: FAST, wall_s=latency_s)
    model = ScriptedModel(answered, latency_s=latency_s)
    return Post(bus=bus, model=model, own=OwnWorkers(frozenset(roles), SimulatedBuilder(), evaluator))


async def led(session: Session, post: Post, stop: StopSwitch | None = None) -> None:
    await post.bus.open_stream(session.started.run_id)
    with single_error(), anyio.fail_after(30):
        await lead_distributed(session, post, tell=session.chronicle.fold, stop=stop, terms=TERMS)


async def rounds_done(session: Session, count: int) -> None:
    while session.chronicle.state.rounds < count:  # noqa: ASYNC110 - whoever folds the records knows no event of ours
        await anyio.sleep(0.005)


async def recorded(session: Session) -> list[Record]:
    return await anyio.to_thread.run_sync(lambda: list(read_journal(session.folder.journal)))


async def test_a_run_uses_its_rounds_and_its_folder_has_a_copy_of_its_stream(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path), new_bus()
    await led(session, new_post(bus))
    assert problems_of_run(await recorded(session), rounds=6) == []
    assert (await read_chronicle(bus, RUN_ID)).state == session.chronicle.state
    assert session.chronicle.workers.keys() == {"coder", "builder", "evaluator"}
    assert list(session.folder.best.rglob("*.cpp"))


async def test_one_that_loses_the_lead_records_on_until_the_run_ends(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path, LONG), new_bus()
    post = new_post(bus)

    async def usurp() -> None:
        await rounds_done(session, 4)
        entry = await bus.get(lease_key(RUN_ID))
        assert entry is not None
        await bus.put(lease_key(RUN_ID), b"usurper", revision=entry.revision, ttl_s=2)
        await lead(bus, post.model, run_id=RUN_ID, holder="usurper", terms=TERMS)

    async with anyio.create_task_group() as others:
        others.start_soon(usurp)
        await led(session, post)
    assert problems_of_run(await recorded(session), rounds=40) == []


async def test_who_only_follows_records_the_run_and_ends_with_it(tmp_path: Path) -> None:
    bus = new_bus()
    led_here = new_session(tmp_path, LONG)
    (tmp_path / "elsewhere").mkdir()
    there = msgspec.structs.replace(new_session(tmp_path / "elsewhere", LONG), opening=None, leads=False)
    async with anyio.create_task_group() as both:
        both.start_soon(led, led_here, new_post(bus))
        await rounds_done(led_here, 3)
        await led(there, new_post(bus, roles=()))
    assert there.chronicle.state == led_here.chronicle.state
    assert [record.seq for record in await recorded(there)] == [record.seq for record in await recorded(led_here)]


async def test_it_is_stopped_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    session, bus, stop = new_session(tmp_path, LONG), new_bus(), StopSwitch()

    async def interrupt() -> None:
        await rounds_done(session, 5)
        stop.ask("test")

    async with anyio.create_task_group() as others:
        others.start_soon(interrupt)
        await led(session, new_post(bus), stop)
    assert session.chronicle.finished is not None
    assert session.chronicle.finished.stopped_by == "interrupted"
    chronicle = await read_chronicle(bus, RUN_ID)
    again = msgspec.structs.replace(
        session, chronicle=chronicle, opening=resumption(chronicle, session.config, session.lineup)
    )
    assert isinstance(again.opening, RunResumed)
    await led(again, new_post(bus))
    assert problems_of_run(await recorded(session), rounds=40) == ["the run ended 2 times"]


async def test_a_run_that_is_asked_to_rest_rests_until_it_is_asked_to_go_on(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path, LONG), new_bus()
    told: list[str] = []

    async def steer() -> None:
        await rounds_done(session, 4)
        assert await ask(bus, RUN_ID, PauseRequested(reason="test"), patience_s=5)
        told.append((await read_chronicle(bus, RUN_ID)).standing)
        while session.chronicle.state.jobs:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.005)
        assert session.chronicle.state.rounds < 40
        assert await ask(bus, RUN_ID, ContinueRequested(), patience_s=5)

    async with anyio.create_task_group() as others:
        others.start_soon(steer)
        await led(session, new_post(bus))
    assert told == ["paused"]
    facts = [type(fact) for fact in facts_of(await recorded(session)) if isinstance(fact, RunPaused | RunContinued)]
    assert facts == [RunPaused, RunContinued]


async def test_nobody_answers_for_a_run_that_nobody_leads(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path), new_bus()
    await bus.open_stream(RUN_ID)
    await bus.publish(RUN_ID, encode(session.started), msg_id="x")
    assert not await ask(bus, RUN_ID, PauseRequested(reason="test"), patience_s=0.2)


async def test_a_start_that_fails_leaves_nothing_on_the_server() -> None:
    bus = new_bus()
    with pytest.raises(ConfigError, match="nobody"):
        async with claimed(bus, RUN_ID):
            raise ConfigError("nobody is there")
    assert not await has_stream(bus, RUN_ID)


async def test_the_name_of_a_run_that_is_there_is_refused_and_the_run_stays(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path), new_bus()
    await bus.open_stream(RUN_ID)
    await bus.publish(RUN_ID, encode(session.started), msg_id="x")
    with pytest.raises(ConfigError, match="already"):
        async with claimed(bus, RUN_ID):
            pass
    with pytest.raises(ConfigError, match="already"):
        await led(session, new_post(bus))  # both had looked at the same moment
    assert await bus.open_stream(RUN_ID) == 2


@pytest.mark.virtual_time
async def test_a_lease_that_is_renewed_has_a_leader_and_one_that_is_not_has_none() -> None:
    bus = new_bus()
    await bus.put(lease_key(RUN_ID), b"dead", revision=0, ttl_s=10)
    with anyio.fail_after(12):
        assert await live_leader(bus, RUN_ID) is None

    async def renew() -> None:
        revision = 0
        while True:
            revision = await bus.put(lease_key(RUN_ID), b"alive", revision=revision, ttl_s=10)
            await anyio.sleep(3)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renew)
        await anyio.sleep(1)
        assert await live_leader(bus, RUN_ID) == "alive"
        tasks.cancel_scope.cancel()


async def test_a_run_whose_planner_died_is_taken_over_without_a_word(tmp_path: Path) -> None:
    session, bus = new_session(tmp_path, LONG), new_bus()
    post = new_post(bus)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(led, session, post)
        await rounds_done(session, 5)
        tasks.cancel_scope.cancel()
    chronicle = await read_chronicle(bus, RUN_ID)
    assert chronicle.finished is None
    assert resumption(chronicle, session.config, session.lineup) is None
    larger = msgspec.structs.replace(LONG, budget=Budget(max_rounds=50))
    assert resumption(chronicle, msgspec.structs.replace(session.config, search=larger), session.lineup) is not None
    stopped = await read_chronicle(bus, RUN_ID)
    stopped.fold(Record(seq=stopped.last_seq + 1, at=story()[0].at, msg_id="x", body=StopRequested(reason="test")))
    assert resumption(stopped, session.config, session.lineup) is not None  # it was for the session before
    await led(msgspec.structs.replace(session, opening=None, chronicle=chronicle), new_post(bus))
    assert problems_of_run(await recorded(session), rounds=40) == []


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        (None, None, True),
        ("embedded", "embedded", True),
        ("nats://a:1", "nats://b:1", True),
        (None, "embedded", False),
        ("nats://a:1", "embedded", False),
        ("nats://a:1", None, False),
    ],
)
def test_a_run_goes_on_where_its_messages_are(before: str | None, after: str | None, stays: bool) -> None:
    saved, config = RunConfig(task="t", nats=before), RunConfig(task="t", nats=after)
    if stays:
        check_messages_stay(saved, config, "r1")
    else:
        with pytest.raises(ConfigError, match="run 'r1' has its messages"):
            check_messages_stay(saved, config, "r1")
