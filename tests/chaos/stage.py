"""A whole play: server, model, workers and a run as real processes, the blows of a schedule, and what is left to check.

Everything that is started carries a mark in its environment, and has ended before `play` returns.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from actors.bus.base import Bus
from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import LOG_FILE, NatsServer, ServerSettings, serve_nats
from actors.llm.served.app import Report
from tests.chaos.blows import Striker
from tests.chaos.disk import Disk, NoDiskError, small_disk
from tests.chaos.fleet import MARKER, Worker, gone
from tests.chaos.links import Link
from tests.chaos.remains import lost_jobs, problems_of_play
from tests.chaos.schedule import GAP_S, KINDS, Kind, Times, schedule

KSEARCH = (sys.executable, "-m", "ksearch_async")
TASK = "rmsnorm_silu"
MODEL = "offline-rules"
_READY_S = 60.0
_ORPHANS_S = 10.0


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What is played."""

    seed: int = 0
    minutes: float = 3.0
    rounds: int = 300
    branches: int = 6
    planners: int = 2
    coders: int = 3
    builders: int = 2
    evaluators: int = 3
    evaluation_s: float = 0.2
    pace: float = 0.65
    """Part of the time that the run would last undisturbed."""
    grace_s: float = 150.0
    """How long after the chaos the run may take to end."""
    gap_s: float = GAP_S
    kinds: tuple[Kind, ...] = KINDS
    times: Times = Times()

    @property
    def run_id(self) -> str:
        """The run's name."""
        return f"chaos-{self.seed}"

    @property
    def chaos_s(self) -> float:
        """How long things go wrong."""
        return 60.0 * self.minutes * 0.85

    @property
    def latency_s(self) -> float:
        """How long the model takes to answer: sets the pace."""
        return max(0.05, self.pace * 60.0 * self.minutes * self.branches / self.rounds - self.evaluation_s - 0.3)


class Outcome(msgspec.Struct, kw_only=True):
    """How it ended."""

    seed: int
    problems: list[str] = []
    chaos: dict[str, int] = {}
    """What went wrong, how often."""
    left_out: dict[str, str] = {}
    """What could not be done here, and why."""
    gave_up: dict[str, list[int]] = {}
    """Exit codes of workers that ended by themselves, and were started again as a supervisor would."""
    lost: list[str] = []
    """Jobs that were lost and asked for again."""
    ledger: Report | None = None
    wall_s: float = 0.0


async def play(told: Play, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Play it: takes the time that was told, and until the run is over.

    Args:
        told: what is played.
        folder: an empty folder for logs, stores and the run; looked into when something is wrong.
        tell: is told of each blow.
    """
    began, outcome, mark = anyio.current_time(), Outcome(seed=told.seed), secrets.token_hex(8)
    with _marked(mark), _disk(told, folder, outcome) as disk:
        store = folder / "store" if disk is None else disk.path / "store"
        async with serve_nats(ServerSettings(store=store)) as server:
            try:
                await _Stage(told, folder, outcome, tell).play(server, disk)
            finally:
                _keep_log(store, folder)
    outcome.problems += [f"left behind: {what}" for what in await gone(mark, within_s=_ORPHANS_S)]
    outcome.wall_s = round(anyio.current_time() - began, 1)
    return outcome


class _Stage:
    def __init__(self, told: Play, folder: Path, outcome: Outcome, tell: Callable[[str], None]) -> None:
        self._told = told
        self._folder = folder
        self._outcome = outcome
        self._tell = tell

    async def play(self, server: NatsServer, disk: Disk | None) -> None:
        told = self._told
        async with (
            _serve_model(told, self._folder) as (base_url, report),
            open_nats(NatsOptions(servers=(server.url,), name="chaos")) as bus,
        ):
            await bus.prepare()
            async with anyio.create_task_group() as tasks:
                workers = await self._start_workers(tasks, server, base_url)
                run = await self._start_run(tasks, server, base_url)
                blows = schedule(told.seed, told.chaos_s, gap_s=told.gap_s, kinds=told.kinds, times=told.times)
                striker = Striker(
                    workers=[run, *workers], server=server, bus=bus, run_id=told.run_id, disk=disk, tell=self._tell
                )
                with anyio.move_on_after(told.chaos_s + told.grace_s) as waiting:
                    await self._until_begun(bus, run)
                    async with anyio.create_task_group() as chaos:
                        chaos.start_soon(striker.carry_out, blows)
                        await run.wait()
                        chaos.cancel_scope.cancel()
                if waiting.cancelled_caught:
                    self._outcome.problems.append(f"the run did not end within {told.grace_s:g} s after the chaos")
                self._outcome.chaos = dict(striker.done)
                await self._stop(run, workers)
                tasks.cancel_scope.cancel()
            self._outcome.ledger = await report()
            await self._check(bus, server, self._outcome.ledger)

    async def _check(self, bus: Bus, server: NatsServer, ledger: Report) -> None:
        told = self._told
        self._outcome.lost = await lost_jobs(bus, told.run_id)
        self._outcome.problems += await problems_of_play(
            bus=bus,
            server=server,
            report=ledger,
            run_id=told.run_id,
            folder=self._folder,
            rounds=told.rounds,
        )

    async def _until_begun(self, bus: Bus, run: Worker) -> None:
        """Wait for the first decision: what begins while the server is away is another test's."""
        with anyio.fail_after(_READY_S):
            while await bus.open_stream(self._told.run_id) < 2:
                if run.pid is None:
                    raise RuntimeError(f"the run did not begin: {run.log.read_text()}")
                await anyio.sleep(0.2)

    async def _start_workers(self, tasks: TaskGroup, server: NatsServer, base_url: str) -> list[Worker]:
        told, model = self._told, ("--base-url", base_url, "--model", MODEL)
        store = ("--artifacts", str(self._folder / "artifacts"))
        simulated = ("--device", f"simulated:{told.evaluation_s:g}")
        roles: dict[str, tuple[int, tuple[str, ...]]] = {
            "evaluator": (told.evaluators, (*simulated, *store)),
            "builder": (told.builders, ("--device", "simulated", *store)),
            "coder": (told.coders, ("--slots", "2", *model)),
            "planner": (told.planners, model),
        }
        workers = []
        for role, (count, options) in roles.items():
            for number in range(count):
                link = await self._link(tasks, server)
                command = (*KSEARCH, role, "--nats", link.url, *options)
                name = f"{role}-{number}"
                if role == "planner":
                    command = (*command, "--runs-dir", str(self._folder / name))
                worker = Worker(name, role, command, log=self._folder / f"{name}.log", link=link)
                await tasks.start(worker.keep)
                workers.append(worker)
        return workers

    async def _start_run(self, tasks: TaskGroup, server: NatsServer, base_url: str) -> Worker:
        """Start the run: its process leads and records it. Killed, it is resumed; meanwhile a planner may lead."""
        told, runs = self._told, self._folder / "runs"
        link = await self._link(tasks, server)
        model = ["--base-url", base_url, "--model", MODEL]
        command = [*KSEARCH, "run", TASK, "--nats", link.url, "--arch", "simulated", "--run-name", told.run_id]
        command += ["--runs-dir", str(runs), "--seed", str(told.seed), "--view", "plain", *model]
        command += ["--max-rounds", str(told.rounds), "--branches", str(told.branches)]
        resume = [*KSEARCH, "resume", str(runs / told.run_id), "--nats", link.url, "--view", "plain", *model]
        run = Worker("run", "planner", command, log=self._folder / "run.log", link=link, resume=resume)
        await tasks.start(run.keep)
        return run

    async def _link(self, tasks: TaskGroup, server: NatsServer) -> Link:
        link = Link(server.port)
        await tasks.start(link.serve)
        return link

    async def _stop(self, run: Worker, workers: list[Worker]) -> None:
        """Have everybody leave, and see that they do it in good order."""
        async with anyio.create_task_group() as stopping:
            for worker in [run, *workers]:
                stopping.start_soon(worker.stop)
        self._outcome.gave_up = {worker.name: worker.exits for worker in [run, *workers] if worker.exits}
        self._outcome.problems += [worker.complaint for worker in [run, *workers] if worker.complaint]


@asynccontextmanager
async def _serve_model(told: Play, folder: Path) -> AsyncIterator[tuple[str, Callable[[], Awaitable[Report]]]]:
    """Serve the offline model; yields its address, and what asks for its report."""
    options = ("--port", "0", "--json", "--seed", str(told.seed), "--latency", f"{told.latency_s:.3f}")
    with (folder / "model.log").open("wb") as log:
        async with await anyio.open_process((*KSEARCH, "offline-model", *options), stderr=log) as process:
            assert process.stdout is not None
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            base_url = str(msgspec.json.decode(line)["base_url"])

            async def report() -> Report:
                async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
                    answer = await client.get(f"{base_url.removesuffix('/v1')}/stats")
                return msgspec.json.decode(answer.content, type=Report)

            try:
                yield base_url, report
            finally:
                process.send_signal(signal.SIGTERM)
                with anyio.CancelScope(shield=True):
                    await process.wait()


@contextmanager
def _marked(mark: str) -> Iterator[None]:
    """Have every process that is started meanwhile carry the mark."""
    os.environ[MARKER] = mark
    try:
        yield
    finally:
        del os.environ[MARKER]


@contextmanager
def _disk(told: Play, folder: Path, outcome: Outcome) -> Iterator[Disk | None]:
    """Have a small disk for the server, where one is wanted and can be had."""
    with ExitStack() as stack:
        disk = None
        if "full disk" in told.kinds:
            try:
                disk = stack.enter_context(small_disk(folder / "disk"))
            except NoDiskError as error:
                outcome.left_out["full disk"] = str(error)
        yield disk


def _keep_log(store: Path, folder: Path) -> None:
    """Copy the server's log from a disk that ends with the play."""
    log = store / LOG_FILE
    if log.exists():
        shutil.copy(log, folder / LOG_FILE)
