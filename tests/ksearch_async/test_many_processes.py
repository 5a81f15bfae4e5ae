"""Runs of many processes, as people start them: over a server for all, and over a server of the run's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from actors.bus.journal import read_journal
from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from ksearch_async.fleet.status import has_stream, read_cards, read_chronicle
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten
from messages.presence import lease_key
from tests.chaos.checks import folded, problems_of_run
from tests.ksearch_async.test_node_processes import Nodes
from tests.ksearch_async.test_whole_run import PROBLEM

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

ROUNDS = 24


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    async with open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        yield bus


@pytest.fixture
async def nodes(server: NatsServer, bus: NatsBus, tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(server, bus, tmp_path)
    yield nodes
    with anyio.CancelScope(shield=True):
        await nodes.end()


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    (tmp_path / "gate.py").write_text(PROBLEM)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ksearch_async", *words]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}


async def ksearch(*words: str, cwd: Path) -> tuple[int, str, str]:
    with anyio.fail_after(100):
        done = await anyio.run_process(command(*words), check=False, cwd=cwd, env=environment())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@asynccontextmanager
async def started(*words: str, cwd: Path) -> AsyncIterator[Process]:
    process = await anyio.open_process(command(*words), cwd=cwd, env=environment(), stderr=None)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


async def until_kind(process: Process, kind: str) -> None:
    """Read a run's events up to one of this kind."""
    assert process.stdout is not None
    read = ""
    async for text in TextReceiveStream(process.stdout):
        read += text
        *lines, read = read.split("\n")
        if any(json.loads(line)["kind"] == kind for line in lines):
            return
    raise AssertionError(f"it ended before {kind}")


async def rest_of(process: Process) -> int:
    assert process.stdout is not None
    async for _ in TextReceiveStream(process.stdout):
        pass
    return await process.wait()


async def records_of(folder: Path) -> list[Record]:
    return await anyio.to_thread.run_sync(lambda: list(read_journal(folder / "journal.jsonl")))


async def test_a_planner_two_coders_a_builder_and_three_evaluators_keep_the_rules_of_one_process(
    server: NatsServer, bus: NatsBus, nodes: Nodes, workplace: Path
) -> None:
    for role, *flags in (
        ("evaluator", "--language", "triton"),  # of another device: it must not take a job of this run
        ("evaluator", "--device", "simulated:0.05", "--slots", "1"),
        ("evaluator", "--device", "simulated:0.05", "--slots", "1"),
        ("builder", "--device", "simulated"),
        ("coder", "--slots", "2"),
        ("coder", "--slots", "2"),
    ):
        await nodes.start(role, *flags)
    await nodes.until("evaluator", lambda found: sum(node.presence.state == "ready" for node in found) == 3)
    await nodes.until("coder", lambda found: sum(node.presence.state == "ready" for node in found) == 2)
    words = ("run", "gate.py", "--nats", server.url, "--max-rounds", str(ROUNDS), "--run-name", "many", "--json")
    code, out, said = await ksearch(*words, cwd=workplace)
    assert code in (0, 1), said
    assert json.loads(out.splitlines()[-1])["stopped_by"] == "rounds"
    records = await records_of(workplace / "runs" / "many")
    assert problems_of_run(records, rounds=ROUNDS) == []
    assert folded(records) == (await read_chronicle(bus, "many")).state
    coders = {record.body.worker for record in records if isinstance(record.body, CandidateWritten)}
    evaluators = {record.body.worker for record in records if isinstance(record.body, CandidateEvaluated)}
    assert (len(coders), len(evaluators)) == (2, 2)
    assert {record.body.device for record in records if isinstance(record.body, CandidateEvaluated)} == {"simulated"}
    assert await bus.get(lease_key("many")) is None
    assert [(card.state, card.rounds) for card in await read_cards(bus)] == [("finished", ROUNDS)]
    code, out, said = await ksearch("watch", "many", "--nats", server.url, "--record", "copy", cwd=workplace)
    assert code in (0, 1), said
    assert f"rounds     {ROUNDS} of {ROUNDS}" in out
    assert "workers    2 coders, 1 builder, 2 evaluators" in out
    assert [record.seq for record in await records_of(workplace / "copy" / "many")] == [
        record.seq for record in records
    ]
    _forget_all_but(workplace / "runs" / "many", lines=3)
    code, out, said = await ksearch("resume", "runs/many", cwd=workplace)
    assert (code, "is over" in said) == (0, True), said
    assert await records_of(workplace / "runs" / "many") == records
    assert list((workplace / "runs" / "many" / "best").iterdir())


def _forget_all_but(folder: Path, *, lines: int) -> None:
    """Leave a folder as its process does that is killed while another planner leads on."""
    journal = folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))
    shutil.rmtree(folder / "best")


def is_server(process: psutil.Process) -> bool:
    """Say whether a process is a NATS server; one that has ended meanwhile is none."""
    try:
        return "nats" in process.name()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
async def test_a_run_with_a_server_of_its_own_rests_stops_and_goes_on_and_leaves_no_process(workplace: Path) -> None:
    words = ("run", "gate.py", "--nats", "embedded", "--max-rounds", "4", "--branches", "2", "--run-name", "own")
    async with started(*words, "--json", cwd=workplace) as run:
        with anyio.fail_after(100):
            await until_kind(run, "attempt.finished")
            servers = [child.pid for child in psutil.Process(run.pid).children(recursive=True) if is_server(child)]
            assert len(servers) == 1
            _, out, _ = await ksearch("pause", "own", cwd=workplace)
            assert out == "run own paused: what is in flight is finished, nothing new begins\n"
            _, out, _ = await ksearch("continue", "own", "--json", cwd=workplace)
            assert out == '{"run":"own","state":"running","taken":true}\n'
            run.send_signal(signal.SIGINT)
            assert await rest_of(run) == 130
    assert not psutil.pid_exists(servers[0])
    code, _, said = await ksearch("stop", "own", cwd=workplace)
    assert code == 2
    assert "the server of run 'own' is not there" in said
    code, _, said = await ksearch("resume", "own", "--view", "plain", cwd=workplace)
    assert code in (0, 1), said
    records = await records_of(workplace / "runs" / "own")
    assert problems_of_run(records, rounds=4) == ["the run ended 2 times"]


async def test_a_start_that_fails_leaves_neither_a_folder_nor_a_run(
    server: NatsServer, bus: NatsBus, workplace: Path
) -> None:
    (workplace / "gate.py").write_text(PROBLEM.replace("return x *", "raise ValueError('no') or x *"))
    words = ("run", "gate.py", "--nats", server.url, "--with", "all", "--run-name", "gone")
    code, _, said = await ksearch(*words, cwd=workplace)
    assert code == 2
    assert "error: " in said
    assert list((workplace / "runs").iterdir()) == []
    assert not await has_stream(bus, "gone")
    assert await read_cards(bus) == []
