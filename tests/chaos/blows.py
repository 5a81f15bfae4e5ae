"""Carries out the blows of a schedule on a fleet, its server, their links and the server's disk."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
import httpx
from anyio.abc import TaskGroup

from actors.bus.base import Bus
from actors.bus.nats.local_server import NatsServer
from messages.base import BusError
from messages.presence import lease_key
from tests.chaos.disk import Disk
from tests.chaos.fleet import Worker
from tests.chaos.schedule import Blow

_LEADER_SHARE = 0.75
"""How often a blow on planners strikes the one that leads."""
_LOOK_S = 2.0


class Striker:
    """Strikes, and heals again."""

    def __init__(
        self,
        *,
        workers: Sequence[Worker],
        server: NatsServer,
        bus: Bus,
        run_id: str,
        disk: Disk | None,
        tell: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._server = server
        self._bus = bus
        self._run_id = run_id
        self._disk = disk
        self._tell = tell
        self._server_turn = anyio.Lock()
        """What is done to the server is done one after the other."""
        self.done: Counter[str] = Counter()
        """What was carried out, and `restarted after a full disk`."""

    async def carry_out(self, blows: Sequence[Blow]) -> None:
        """Strike each at its time; returns when all has healed. Cancelled, it heals everything first."""
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for blow in blows:
                await anyio.sleep_until(began + blow.at_s)
                await self._strike(blow, tasks)

    async def _strike(self, blow: Blow, tasks: TaskGroup) -> None:
        what, _, whom = blow.kind.partition(" ")
        if whom == "server":
            tasks.start_soon(self._kill_server if what == "kill" else self._freeze_server, blow)
        elif whom == "disk":
            tasks.start_soon(self._fill_disk, blow)
        else:
            worker = await self._victim("" if whom == "link" else whom, blow.pick)
            if worker is not None:
                strike = {"kill": self._kill, "freeze": self._freeze, "stall": self._stall, "cut": self._cut}[what]
                self._count(blow, worker.name)
                tasks.start_soon(strike, worker, blow.lasts_s)

    async def _victim(self, role: str, pick: float) -> Worker | None:
        """Choose among those that are up; of the planners mostly the one that leads."""
        up = [worker for worker in self._workers if worker.is_up and role in ("", worker.role)]
        if role == "planner" and pick < _LEADER_SHARE:
            up = await self._leaders(up) or up
        return up[int(pick * len(up)) % len(up)] if up else None

    async def _leaders(self, planners: list[Worker]) -> list[Worker]:
        with anyio.move_on_after(_LOOK_S):
            try:
                entry = await self._bus.get(lease_key(self._run_id))
            except BusError:
                return []
            holder = entry.value.decode() if entry is not None else ""
            return [worker for worker in planners if f"-{worker.pid}-" in holder]
        return []

    async def _kill(self, worker: Worker, rest_s: float) -> None:
        worker.kill(rest_s)

    async def _freeze(self, worker: Worker, lasts_s: float) -> None:
        worker.freeze()
        try:
            await anyio.sleep(lasts_s)
        finally:
            worker.thaw()

    async def _stall(self, worker: Worker, lasts_s: float) -> None:
        worker.link.stall()
        try:
            await anyio.sleep(lasts_s)
        finally:
            worker.link.heal()

    async def _cut(self, worker: Worker, lasts_s: float) -> None:
        try:
            await worker.link.cut()
            await anyio.sleep(lasts_s)
        finally:
            worker.link.heal()

    async def _kill_server(self, blow: Blow) -> None:
        async with self._server_turn:
            self._count(blow, "nats-server")
            await self._server.kill()
            try:
                await anyio.sleep(blow.lasts_s)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._server.restart()

    async def _freeze_server(self, blow: Blow) -> None:
        async with self._server_turn:
            self._count(blow, "nats-server")
            os.kill(self._server.pid, signal.SIGSTOP)
            try:
                await anyio.sleep(blow.lasts_s)
            finally:
                os.kill(self._server.pid, signal.SIGCONT)

    async def _fill_disk(self, blow: Blow) -> None:
        """Fill the server's disk for a while; a server that stopped keeping messages for it is then restarted."""
        if self._disk is None:
            return
        async with self._server_turn:
            self._count(blow, "the server's store")
            try:
                await anyio.to_thread.run_sync(self._disk.fill)
                await anyio.sleep(blow.lasts_s)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._disk.free)
                    if not await self._is_healthy():
                        self.done["server restarted after a full disk"] += 1
                        await self._server.kill()
                        await self._server.restart()

    async def _is_healthy(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
                answer = await client.get(f"{self._server.monitoring_url}/healthz")
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    def _count(self, blow: Blow, whom: str) -> None:
        self.done[blow.kind] += 1
        self._tell(f"{blow.kind}: {whom}, {blow.lasts_s:.1f} s")
