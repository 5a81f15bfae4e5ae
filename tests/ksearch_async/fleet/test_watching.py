"""Which run of which server is meant, and what can be seen of it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from ksearch_async.fleet.status import Place, find_place, find_run_id, tell_leader
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import follow
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.base import ConfigError
from messages.codec import Body, Record, encode
from messages.facts import Decided, RunFinished, SearchReopened
from messages.presence import RunCard, RunState, encode_entry, lease_key, run_key
from messages.settings import Budget
from tests.ksearch_async.stories import RUN_ID, TARGET, story

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
URL = "nats://127.0.0.1:4222"


@pytest.fixture
def bus() -> MemoryBus:
    stores: dict[str, MemoryStore] = {}
    return MemoryBus(lambda run_id: stores.setdefault(run_id, MemoryStore()))


def folder_of(tmp_path: Path, nats: str | None) -> RunFolder:
    folder = RunFolder(tmp_path / "r1")
    folder.path.mkdir()
    save_config(RunConfig(task="relu", nats=nats), folder.config)
    folder.journal.touch()
    return folder


def test_a_server_that_is_named_counts_most(tmp_path: Path) -> None:
    folder_of(tmp_path, "nats://other:1")
    assert find_place("r1", URL, tmp_path, {"KSEARCH_NATS": "nats://third:1"}) == Place(address=URL, run_id="r1")


def test_else_the_folder_says_where_the_run_is_and_else_the_environment(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, URL)
    environment = {"KSEARCH_NATS": "nats://third:1"}
    assert find_place("r1", None, tmp_path, environment) == Place(address=URL, run_id="r1")
    assert find_place(str(folder.path), None, tmp_path / "none", {}) == Place(address=URL, run_id="r1")
    assert find_place("latest", None, tmp_path, {}) == Place(address=URL, run_id="r1")
    assert find_place("latest", None, tmp_path, environment) == Place(address="nats://third:1", run_id="latest")
    assert find_place("r2", None, tmp_path, environment) == Place(address="nats://third:1", run_id="r2")
    with pytest.raises(ConfigError, match=r"no run 'r2' is in .*, and no NATS server is named"):
        find_place("r2", None, tmp_path, {})


def test_a_server_of_the_runs_own_is_found_while_it_is_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "embedded")
    with pytest.raises(ConfigError, match="the server of run 'r1' is not there"):
        find_place("r1", None, tmp_path, {})
    folder.address.write_text(f"{URL}\n")
    with folder.journal.open("rb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        assert find_place("r1", None, tmp_path, {}) == Place(address=URL, run_id="r1", is_private=True)
    with pytest.raises(ConfigError, match="the server of run 'r1' is not there"):
        find_place("r1", None, tmp_path, {})


def test_a_run_of_one_process_has_no_server_and_the_hint_says_how_it_is_stopped(tmp_path: Path) -> None:
    folder_of(tmp_path, None)
    with pytest.raises(ConfigError, match="run 'r1' has no server") as refused:
        find_place("r1", None, tmp_path, {})
    assert "Ctrl-C" in refused.value.__notes__[0]


async def shows(bus: MemoryBus, run_id: str, at: str, state: RunState = "running") -> None:
    card = RunCard(
        run_id=run_id,
        task_name="relu",
        language="cpp",
        target=TARGET,
        state=state,
        submitted_at=at,
        updated_at=at,
    )
    await bus.put(run_key(run_id), encode_entry(card), revision=0)


async def test_the_latest_run_is_one_that_goes_on_if_there_is_one(bus: MemoryBus) -> None:
    await shows(bus, "old", "2026-01-01")
    await shows(bus, "older", "2025-01-01")
    await shows(bus, "over", "2026-02-01", "finished")
    assert await find_run_id(bus, "latest") == "old"
    assert await find_run_id(bus, "over") == "over"


async def test_the_only_run_needs_no_name_and_several_are_listed(bus: MemoryBus) -> None:
    with pytest.raises(ConfigError, match="no run is on this server"):
        await find_run_id(bus, "")
    await shows(bus, "r1", "2026-01-01")
    assert await find_run_id(bus, "") == "r1"
    await shows(bus, "r0", "2026-01-03", "finished")
    assert await find_run_id(bus, "") == "r1"
    await shows(bus, "r2", "2026-01-02")
    with pytest.raises(ConfigError, match="several runs") as refused:
        await find_run_id(bus, "")
    assert refused.value.__notes__ == ["r2 (relu, running); r1 (relu, running); r0 (relu, finished)"]


async def test_a_run_that_is_not_there_is_refused_with_those_that_are(bus: MemoryBus) -> None:
    await shows(bus, "relu-1", "2026-01-01")
    with pytest.raises(ConfigError, match="no run 'relu-2'") as refused:
        await find_run_id(bus, "relu-2")
    assert refused.value.__notes__ == ["did you mean 'relu-1'?"]


async def test_a_run_whose_card_is_gone_is_found_by_its_events(bus: MemoryBus) -> None:
    await bus.open_stream("r1")
    assert await find_run_id(bus, "r1") == "r1"


async def test_a_run_that_was_resumed_is_followed_to_its_last_end(bus: MemoryBus) -> None:
    reopened = Decided(cause=1, facts=(SearchReopened(budget=Budget(max_rounds=2), lost_calls=0),))
    bodies: list[Body] = [*(record.body for record in story("interrupted")), reopened]
    await bus.open_stream(RUN_ID)
    for number, body in enumerate(bodies):
        await bus.publish(RUN_ID, encode(body), msg_id=f"m{number}")
    told: list[Record] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ends_later, bus, bodies)
        await follow(bus, RUN_ID, 0, told.append, known=len(bodies))
    assert len(told) == len(bodies) + 1


async def _ends_later(bus: MemoryBus, bodies: list[Body]) -> None:
    await anyio.sleep(10)
    ended = next(body for body in bodies if isinstance(body, Decided) and isinstance(body.facts[-1], RunFinished))
    await bus.publish(RUN_ID, encode(msgspec.structs.replace(ended, cause=99)), msg_id="end")


async def test_it_is_told_who_takes_a_run_over_and_that_nobody_has(bus: MemoryBus) -> None:
    notes: list[str] = []
    await bus.put(lease_key("r1"), b"first", revision=0, ttl_s=10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell_leader, bus, "r1", notes.append)
        await anyio.sleep(40)
        assert len(notes) == 1
        assert notes[0].startswith("no planner leads the run")
        await bus.put(lease_key("r1"), b"second", revision=0, ttl_s=10)
        await anyio.sleep(4)
        tasks.cancel_scope.cancel()
    assert notes[1:] == ["second leads the run now"]
