"""A standby planner: leads the runs of a server that have no leader, several at once, and records them.

A run is free when it is not finished and its lease has expired or was given back. The process that gets the lease reads
the run's stream and continues where it ends; `actors/planner/leadership.py` explains why that is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from actors.bus.base import Bus, UnknownQueueError
from actors.bus.stream import body_of
from actors.llm.base import Model
from actors.planner.leadership import LeaseTerms, lead
from actors.recorder import record_run
from actors.supervision import supervise
from actors.worker.member import Member
from actors.worker.taking import Queues
from ksearch_async.errors import single_error
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import ModelSettings, ProgramSettings, RunConfig, save_config
from messages.base import BoundaryError, BusError
from messages.events import RunStarted
from messages.presence import RUNS, RunCard, Served, decode_card, lease_key

LOOK_S = 0.5
"""Poll interval for runs without a leader."""
REST_S = 60.0
"""Seconds for which a run that could not be led is left alone."""
RECORD_AGAIN_S = 10.0
"""Seconds until recording is tried again after a failure: a full disk, or a folder that another process has."""
_LEASES = "lease."

log = structlog.get_logger(__name__)


class Planning:
    """A planner as a node. A `ksearch_async.fleet.nodes.Work`."""

    def __init__(
        self,
        open_model: Callable[[int], AbstractAsyncContextManager[Model]],
        *,
        runs_dir: Path,
        address: str,
        model: ModelSettings,
        only: frozenset[str] = frozenset(),
        terms: LeaseTerms | None = None,
    ) -> None:
        """Begin.

        Args:
            open_model: opens the model that answers a run's questions, for the run's seed.
            runs_dir: folder in which the runs' folders are made.
            address: address of the server, saved for resuming a run from its folder.
            model: settings of the model, saved likewise.
            only: ids of the runs that may be led; none: all.
            terms: times of leases.
        """
        self._open_model = open_model
        self._runs_dir = runs_dir
        self._address = address
        self._model = model
        self._only = only
        self._terms = terms or LeaseTerms()
        self._led: set[str] = set()
        self._rests: dict[str, float] = {}

    async def prove(self, member: Member) -> tuple[Served, ...]:  # noqa: ARG002 - the first question shows it
        """Prove nothing: a model call costs money."""
        await anyio.lowlevel.checkpoint()
        return ()

    async def serve(
        self,
        bus: Bus,
        queues: Queues,  # noqa: ARG002 - planners take no jobs
        member: Member,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Lead runs until the member leaves; then give all leases back."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stand_by, tasks, bus, member)
            task_status.started()
            while not member.is_leaving:
                await member.changed()
            tasks.cancel_scope.cancel()

    async def _stand_by(self, tasks: TaskGroup, bus: Bus, member: Member) -> None:
        is_away = False
        while True:
            try:
                for card in await self._free(bus):
                    self._led.add(card.run_id)
                    tasks.start_soon(self._take_over, bus, member, card)
                is_away = False
            except BusError as error:
                if not is_away:
                    log.warning("cannot look for runs without a planner; trying again", error=str(error))
                is_away = True
            await anyio.sleep(LOOK_S)

    async def _free(self, bus: Bus) -> list[RunCard]:
        now = anyio.current_time()
        entries, leases = await bus.entries(RUNS), await bus.entries(_LEASES)
        cards = [card for entry in entries.values() if (card := decode_card(entry.value)) is not None]
        return [
            card
            for card in cards
            if card.state != "finished"
            and lease_key(card.run_id) not in leases
            and card.run_id not in self._led
            and (not self._only or card.run_id in self._only)
            and self._rests.get(card.run_id, 0.0) <= now
        ]

    async def _take_over(self, bus: Bus, member: Member, card: RunCard) -> None:
        run_id = card.run_id
        with structlog.contextvars.bound_contextvars(run=run_id):
            try:
                log.info("no planner leads this run", last=card.planner)
                await supervise(f"planner of {run_id}", partial(self._conduct, bus, member, run_id), is_vital=False)
            finally:
                self._rests[run_id] = anyio.current_time() + REST_S
                self._led.discard(run_id)

    async def _conduct(
        self,
        bus: Bus,
        member: Member,
        run_id: str,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        started = await _first_event(bus, run_id)
        task_status.started()
        if started is None:
            log.warning("run left alone: it is not on the server, or does not begin as runs do")
            return
        is_over = anyio.Event()

        async def plan(*, task_status: TaskStatus[None]) -> None:
            finished = await lead(
                bus, model, run_id=run_id, holder=member.name, terms=self._terms, task_status=task_status
            )
            log.info("run over", stopped_by=finished.stopped_by, rounds=finished.rounds)
            is_over.set()

        async with self._open_model(started.seed) as model, anyio.create_task_group() as tasks:
            await tasks.start(plan)
            if not is_over.is_set():
                member.took(run_id, run_id, attempt=1)
                try:
                    await self._record(bus, started, is_over)
                finally:
                    member.finished(run_id, None)

    async def _record(self, bus: Bus, started: RunStarted, is_over: anyio.Event) -> None:
        """Record the run until it is over. The run does not depend on it: failures are retried, also at the end."""
        folder = RunFolder(self._runs_dir / started.run_id)
        said = ""
        while True:
            is_last = is_over.is_set()
            try:
                await anyio.to_thread.run_sync(self._make, folder, started)
                await _record_until(is_over, bus, folder, started.run_id)
                return
            except (BoundaryError, OSError) as error:
                if str(error) != said or is_last:
                    log.warning("run not recorded", folder=str(folder.path), error=str(error), tries_again=not is_last)
                said = str(error)
            if is_last:
                return
            with anyio.move_on_after(RECORD_AGAIN_S):
                await is_over.wait()

    def _make(self, folder: RunFolder, started: RunStarted) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        if not folder.config.exists():
            save_config(self._config_of(started), folder.config)

    def _config_of(self, started: RunStarted) -> RunConfig:
        scorer = started.task.scorer
        language = started.description.language
        return RunConfig(
            task=started.task.name,
            language=language,
            seed=started.seed,
            runs_dir=str(self._runs_dir),
            search=started.settings,
            model=self._model,
            nats=self._address,
            weight=started.weight,
            tier=started.tier,
            program=ProgramSettings(
                evaluator=scorer.path,
                timeout_s=scorer.timeout_s,
                memory_gib=scorer.memory_bytes / (1 << 30),
            )
            if scorer
            else ProgramSettings(),
        )


async def _record_until(is_over: anyio.Event, bus: Bus, folder: RunFolder, run_id: str) -> None:
    """Record until the run is over and completely recorded."""
    with single_error():
        async with anyio.create_task_group() as tasks:
            await tasks.start(partial(record_run, bus, run_id=run_id, folder=folder.path, journal=folder.journal))
            await is_over.wait()
            tasks.cancel_scope.cancel()


async def _first_event(bus: Bus, run_id: str) -> RunStarted | None:
    """Return a run's first event; None if it has none."""
    try:
        async with aclosing(bus.events(run_id)) as events:
            with anyio.move_on_after(REST_S):
                body = body_of(await anext(events))
                return body if isinstance(body, RunStarted) else None
    except UnknownQueueError:
        return None
    return None
