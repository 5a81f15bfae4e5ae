"""Orders to runs of one process: led by real processes, killed, over; given by real commands; hostile files."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec
import pytest

from actors.bus.journal import read_journal
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.runs.mailbox import STALE_S, order_local, take_orders
from ksearch_async.runs.orders import open_line
from messages.base import BusError, ConfigError
from messages.codec import to_json
from messages.events import PauseRequested
from messages.facts import BranchStarted, Decided, NodeInserted, RunPaused
from messages.steering import (
    Instruct,
    InstructionGiven,
    NodePinned,
    Pin,
    SteeringRefused,
    SteeringRequested,
)
from tests.ksearch_async.leading import lead

pytestmark = pytest.mark.anyio

MANY = 2000
ROOT_FOLDER = Path(__file__).parents[3]
FactT = TypeVar("FactT", bound=msgspec.Struct)


@asynccontextmanager
async def led_elsewhere(folder: RunFolder, rounds: int = MANY) -> AsyncIterator[anyio.abc.Process]:
    """A process that leads a run, from when its tree has open actions."""
    command = [sys.executable, "-m", "tests.ksearch_async.leading", str(folder.path), str(rounds)]
    async with await anyio.open_process(command, cwd=ROOT_FOLDER, stdout=None, stderr=None) as process:
        try:
            await until(lambda: folder.orders.exists() and len(read_run(folder).state.nodes) > 2)
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(40):
        while not await anyio.to_thread.run_sync(condition):  # noqa: ASYNC110 - another process makes it true
            await anyio.sleep(0.02)


async def ksearch(folder: RunFolder, *words: str) -> tuple[int, dict[str, Any], str]:
    verb, *rest = words
    command = [sys.executable, "-m", "ksearch_async", verb, folder.run_id, *rest]
    command += ["--runs-dir", str(folder.path.parent), "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}
    done = await anyio.run_process(command, check=False, env=environment)
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr.decode()


def facts_in(folder: RunFolder, kind: type[FactT]) -> list[FactT]:
    bodies = [record.body for record in read_journal(folder.journal)]
    return [fact for body in bodies if isinstance(body, Decided) for fact in body.facts if isinstance(fact, kind)]


def pin(node_id: str) -> SteeringRequested:
    return SteeringRequested(order=Pin(node_id=node_id))


def chosen(folder: RunFolder) -> list[str]:
    return [fact.node_id for fact in facts_in(folder, BranchStarted)]


async def test_a_running_process_takes_orders_and_its_planner_answers(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder) as process:
        said = await order_local(folder, "r1", SteeringRequested(order=Instruct(text="no threads")), patience_s=20)
        assert said is not None
        assert said[0] == InstructionGiven(number=1, text="no threads", to="both")
        (refused,) = await order_local(folder, "r1", pin("n99999"), patience_s=20) or ()
        assert isinstance(refused, SteeringRefused)
        assert (await order_local(folder, "r1", PauseRequested(reason="lunch"), patience_s=20) or [None])[
            0
        ] == RunPaused(reason="lunch")
        assert stat.S_IMODE(folder.orders.stat().st_mode) == 0o700
        assert list(folder.orders.iterdir()) == []
        assert process.returncode is None


async def test_commands_steer_pause_and_stop_a_running_process(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder) as process:
        assert (await ksearch(folder, "pause"))[:2] == (0, {"run": "r1", "state": "paused", "taken": True})
        code, told, said = await ksearch(folder, "pause")
        assert (code, told["taken"], "is paused already" in said) == (0, False, True)
        waiting = next(iter(read_run(folder).state.frontier_ids))
        code, told, _ = await ksearch(folder, "pin", waiting)
        assert (code, told["taken"], told["facts"]) == (0, True, [{"kind": "node.pinned", "node_id": waiting}])
        code, told, _ = await ksearch(folder, "tree", "--why")
        first = told["frontier"][0]
        assert (first["node"], first["pinned"]) == (waiting, True)
        (tmp_path / "mine.cpp").write_text("// mine")
        code, told, said = await ksearch(folder, "inject", str(tmp_path / "mine.cpp"), "--title", "Mine")
        assert (code, told["taken"]) == (0, True), said
        assert (await ksearch(folder, "continue"))[0] == 0
        await until(lambda: waiting in chosen(folder))
        (inserted,) = [fact for fact in facts_in(folder, NodeInserted) if fact.origin == "person"]
        await until(lambda: read_run(folder).state.node(inserted.node_id).rounds > 0)
        assert (await ksearch(folder, "stop"))[:2] == (0, {"run": "r1", "state": "stopping", "taken": True})
        await until(lambda: process.returncode is not None)
    assert not folder.orders.exists()
    finished = read_run(folder).finished
    assert finished is not None
    assert finished.stopped_by == "interrupted"


async def test_a_run_whose_process_was_killed_has_orders_recorded_and_goes_by_them_when_it_is_resumed(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder) as process:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert folder.orders.exists()
    state = read_run(folder).state
    waiting = max(state.frontier_ids)
    before = len(chosen(folder))
    code, told, said = await ksearch(folder, "pin", waiting)
    assert (code, told["taken"]) == (0, False)
    assert "this is recorded, and takes effect when it goes on" in said
    code, _, said = await ksearch(folder, "pause")
    assert (code, "run 'r1' is not running" in said) == (2, True)
    assert read_run(folder).outlook.node(waiting).pinned
    assert not read_run(folder).state.node(waiting).pinned
    await lead(folder, state.rounds + 8, latency_s=0)
    assert chosen(folder)[before] == waiting


async def test_a_run_that_is_over_goes_by_what_was_ordered_as_soon_as_it_goes_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    await lead(folder, 4, latency_s=0)
    state = read_run(folder).state
    waiting, banned = sorted(state.frontier_ids)[-1], sorted(state.frontier_ids)[0]
    before = len(chosen(folder))
    code, told, said = await ksearch(folder, "pin", waiting)
    assert (code, told["state"], told["taken"]) == (0, "finished", False)
    assert "ksearch resume r1 --max-rounds N goes on" in said
    assert (await ksearch(folder, "forbid", banned, "--reason", "patented"))[0] == 0
    assert (await ksearch(folder, "pin", banned))[0] == 2
    _, told, _ = await ksearch(folder, "tell", "--list")
    assert told["instructions"] == []
    await ksearch(folder, "tell", "no threads", "--to", "coder")
    _, told, _ = await ksearch(folder, "tell", "--list")
    assert told["instructions"] == [{"number": 1, "text": "no threads", "to": "coder"}]
    code, told, _ = await ksearch(folder, "tree", "--why")
    assert told["frontier"][0]["node"] == waiting
    assert banned not in [each["node"] for each in told["frontier"]]
    session = await lead(folder, 12, latency_s=0)
    assert chosen(folder)[before] == waiting
    assert banned not in chosen(folder)[before:]
    assert session.chronicle.undecided == {}
    decided = [record.body for record in read_journal(folder.journal) if isinstance(record.body, Decided)]
    pins = [body for body in decided if any(isinstance(fact, NodePinned) for fact in body.facts)]
    assert len(pins) == 1


async def test_files_that_are_no_orders_are_thrown_away_and_stop_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder):
        secret = tmp_path / "secret"
        secret.write_bytes(to_json(PauseRequested(reason="by a link")))
        (folder.orders / "a.order").symlink_to(secret)
        (folder.orders / "b.order").write_bytes(b"\xff{")
        (folder.orders / "c.order").write_bytes(b'{"type":"run.started.v1"}')
        os.mkfifo(folder.orders / "d.order")
        (folder.orders / "e.order").write_bytes(b'{"type":"pause.requested.v1","x":' + b"[" * 100_000)
        with (folder.orders / "f.order").open("wb") as huge:
            huge.truncate(100 << 20)
        await until(lambda: not list(folder.orders.iterdir()))
        said = await order_local(folder, "r1", SteeringRequested(order=Instruct(text="on")), patience_s=20)
    assert said is not None
    assert secret.exists()
    assert not facts_in(folder, RunPaused)


def test_orders_are_taken_once_the_oldest_first(tmp_path: Path) -> None:
    for age, name in ((20, "b"), (10, "a")):
        (tmp_path / f"{name}.order").write_bytes(to_json(PauseRequested(reason=name)))
        os.utime(tmp_path / f"{name}.order", (time.time() - age, time.time() - age))
    (tmp_path / "c.new").write_bytes(b"half an ord")
    assert [name for name, _ in take_orders(tmp_path)] == ["b", "a"]
    assert take_orders(tmp_path) == []
    assert take_orders(tmp_path / "none") == []


async def test_what_was_ordered_of_an_earlier_process_is_not_taken_by_the_next(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    await lead(folder, 2, latency_s=0)
    folder.orders.mkdir()
    (folder.orders / "old.order").write_bytes(to_json(PauseRequested(reason="old")))
    os.utime(folder.orders / "old.order", (time.time() - STALE_S - 1, time.time() - STALE_S - 1))
    await lead(folder, 4, latency_s=0)
    assert not facts_in(folder, RunPaused)


async def test_a_process_that_does_not_answer_is_an_error_and_the_order_is_taken_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(BusError, match="has not decided on it within"):
                await order_local(folder, "r1", PauseRequested(reason="-"), patience_s=0.5)
            assert list(folder.orders.iterdir()) == []
        finally:
            process.send_signal(signal.SIGCONT)


async def test_an_order_to_a_process_that_dies_before_it_takes_it_is_recorded_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder) as process:
        process.send_signal(signal.SIGSTOP)

        async def die() -> None:
            await until(lambda: any(folder.orders.iterdir()))
            process.kill()

        async with anyio.create_task_group() as beside:
            beside.start_soon(die)
            assert await order_local(folder, "r1", pin("n1"), patience_s=20) is None
    asked = [record for record in read_journal(folder.journal) if isinstance(record.body, SteeringRequested)]
    assert len(asked) == 1


async def test_a_folder_of_somebody_elses_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "r1")
    async with led_elsewhere(folder):
        folder.orders.rename(tmp_path / "away")
        folder.orders.write_text("in the way")
        with pytest.raises(ConfigError, match="cannot give an order"):
            await order_local(folder, "r1", pin("n1"), patience_s=5)
        folder.orders.unlink()
        (tmp_path / "away").rename(folder.orders)


async def test_a_run_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no NATS server is named"):
        async with open_line("r9", None, tmp_path, {}):
            pass


async def test_texts_of_any_kind_reach_the_models_without_what_is_no_text(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    await lead(folder, 2, latency_s=0)
    hostile = "a\x1b[2J\u202eb\x9b"
    code, told, _ = await ksearch(folder, "tell", hostile)
    assert (code, told["facts"]) == (
        0,
        [{"kind": "instruction.given", "number": 1, "text": "a[2Jb", "to": "both"}],
    )
    code, _, said = await ksearch(folder, "tell", "--file", "-")  # where there is nothing to read
    assert (code, "--file requires" in said) == (2, False)
    (tmp_path / "long.txt").write_text("x" * 5000)
    code, _, said = await ksearch(folder, "tell", "--file", str(tmp_path / "long.txt"))
    assert (code, "at most 4000 are taken" in said) == (2, True)
    asked = [record for record in read_journal(folder.journal) if isinstance(record.body, SteeringRequested)]
    assert len(asked) == 1
