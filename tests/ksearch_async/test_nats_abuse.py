"""A real run under a team's rights while somebody sends nonsense: it is left out, said so, and the run goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.nats import NatsBus
from messages.codec import Record, encode
from messages.events import JobLost, StopRequested
from messages.subjects import build_jobs, evaluate_jobs, write_jobs
from tests.chaos.checks import problems_of_run
from tests.chaos.fleet import Worker
from tests.chaos.remains import records_of
from tests.chaos.stage import KSEARCH
from tests.cluster.fleet import Fleet
from tests.ksearch_async.nats_servers import Intruder, Team, TeamServer, serve_team

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "abused"
ROUNDS = 16
KEY = "sk-Xyzzy-77-Plugh"
PATIENCE_S = 40.0
MANNERS = random.Random(7)
STOP = encode(StopRequested(reason="forged"))
NEWER = STOP.replace(b".v1", b".v9")
"""As a job it would be for workers of a newer release, and the others of its run would wait for those a while."""


def nonsense() -> Iterator[bytes]:
    """Yield what nobody can read: nothing, chance, halves, other versions, depths, what another role says."""
    yield b""
    yield MANNERS.randbytes(40)
    yield MANNERS.randbytes(200_000)
    yield STOP[: len(STOP) // 2]
    yield NEWER
    yield STOP
    yield b"\x91" * 100_000
    yield msgspec.msgpack.encode({"type": "evaluation.finished.v1", "job_id": 7})


async def pester(intruder: Intruder, admin: Intruder) -> None:
    """Send nonsense wherever an evaluator may, and where nobody but the administrator may."""
    for number, payload in enumerate(nonsense()):
        assert await intruder.tries(f"ks.evt.{RUN}.evaluator.x{number}", payload)
        assert await intruder.tries(f"$KV.ks.node.evaluator.x{number}", payload)
        headers = {"Ks-Queue": evaluate_jobs(RUN, "cpp", "simulated"), "Ks-Blob": "0" * 64, "Nats-Rollup": "all"}
        await intruder.tries(f"ks.evt.{RUN}.evaluator.y{number}", payload, headers=headers)
        await intruder.tries(f"ks.dead.{RUN}.evaluate.x{number}", payload, headers={"Ks-Queue": headers["Ks-Queue"]})
        for role in ("coder", "builder", *(("planner",) if payload != STOP else ())):
            await admin.client.publish(f"ks.evt.{RUN}.{role}.x{number}", payload)
        for queue in (
            evaluate_jobs(RUN, "cpp", "simulated"),
            build_jobs(RUN, "cpp", "simulated"),
            write_jobs(RUN),
        ):
            if payload != NEWER:
                await admin.client.publish(f"{queue}.x{number}", payload)
        await admin.client.flush()


async def until_rounds(bus: NatsBus, rounds: int, run: Worker) -> None:
    while True:
        entries = await bus.entries("run.")
        if any(msgspec.json.decode(entry.value)["rounds"] >= rounds for entry in entries.values()):
            return
        assert run.pid is not None, await anyio.Path(run.log).read_text()
        await anyio.sleep(0.05)


async def said(log: Path, what: Callable[[str], str]) -> str:
    while True:
        found = what(await anyio.Path(log).read_text())
        if found:
            return found
        await anyio.sleep(0.05)


def address(text: str) -> str:
    return msgspec.json.decode(text.splitlines()[0])["base_url"] if "\n" in text else ""


def is_loss_of_nonsense(record: Record) -> bool:
    """Say whether a planner tells of a job that it never asked for; it does so, and ignores it."""
    return isinstance(record.body, JobLost) and record.body.job_id.startswith("x")


async def run_under_abuse(server: TeamServer, folder: Path) -> None:
    fleet = Fleet(server.server.url, server.team.folder, folder)
    async with (
        server.intruder("evaluator") as intruder,
        server.intruder("admin") as admin,
        server.bus("admin") as bus,
        anyio.create_task_group() as tasks,
    ):
        endpoint = (*KSEARCH, "offline-model", "--port", "0", "--api-key", KEY, "--json", "--latency", "0.2")
        model = await fleet.start(tasks, "model", "model", (*endpoint, "--server-error", "0.05"))
        base_url = await said(model.log, address)
        asks = ("--base-url", base_url, "--model", "offline-rules")
        workers = await fleet.start_workers(tasks, evaluation_s=0.1, coder=asks)
        run = await fleet.start_run(tasks, RUN, rounds=ROUNDS, branches=2, more=("--json", *asks))
        await until_rounds(bus, 2, run)
        await pester(intruder, admin)
        assert intruder.client.is_connected
        await run.wait()
        assert run.complaint == ""
        told = await anyio.run_process(
            [*KSEARCH, "nodes", "--json", "--nats", fleet.url, "--credentials", str(fleet.credentials / "watcher")]
        )
        (folder / "nodes.json").write_bytes(told.stdout + told.stderr)
        entries = {**await bus.entries("node."), **await bus.entries("run.")}
        (folder / "entries").write_bytes(b"\n".join(entry.value for entry in entries.values()))
        records = [record for record in await records_of(bus, RUN) if not is_loss_of_nonsense(record)]
        assert problems_of_run(records, rounds=ROUNDS) == []
        assert not any(isinstance(record.body, StopRequested) for record in records)
        for worker in (*workers, model):
            await worker.stop()
            assert (worker.complaint, worker.exits) == ("", [])
        tasks.cancel_scope.cancel()


@pytest.mark.long
async def test_nonsense_is_left_out_or_dead_lettered_and_no_secret_is_shown(
    tmp_path: Path, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSEARCH_API_KEY", KEY)
    folder = tmp_path / "play"
    folder.mkdir()
    async with serve_team(tmp_path / "store", team) as server:
        with anyio.fail_after(PATIENCE_S):
            await run_under_abuse(server, folder)
    kinds = len(list(nonsense()))
    lines = [msgspec.json.decode(line) for line in (folder / "runs" / RUN / "ksearch.log").read_bytes().splitlines()]
    left_out = {line["seq"] for line in lines if line["event"].startswith("event left out")}
    assert len(left_out) == 4 * kinds - 1, "of four roles; a planner may ask for a stop, and no stream takes a roll-up"
    assert sum(line["event"].startswith("event ignored") for line in lines) >= kinds - 1, "dead letters of no job"
    for name in ("evaluator", "builder", "coder"):
        assert (folder / f"{name}.log").read_text().count("job refused") == kinds - 1
    hidden = [KEY, *secrets_of(team)]
    assert len(hidden) == 7
    shown = [
        f"{path.relative_to(folder)}: {secret}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for secret in hidden
        if secret.encode() in path.read_bytes()
    ]
    assert shown == []


def secrets_of(team: Team) -> list[str]:
    texts = [path.read_text() for path in team.folder.iterdir()]
    return [line.split('"')[1] for text in texts for line in text.splitlines() if line.startswith("password")]
