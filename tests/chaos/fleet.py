"""Real processes that are started, killed, frozen and started again, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
from anyio.abc import Process, TaskStatus

from tests.chaos.links import Link

MARKER = "CHAOS_PLAY"
"""Environment variable by whose value all processes of one play are known, whoever started them."""
_AGAIN_S = 1.0
"""Until a process that ended by itself is started again, as a supervisor would."""
_STOP_S = 45.0
INFRASTRUCTURE = 3
"""Exit code of a command that met a server that is away; a run is resumed after it, by a person."""


class Worker:
    """One command that is kept running: a service that is started whenever it ends, or a run that ends by itself."""

    def __init__(
        self, name: str, role: str, command: Sequence[str], *, log: Path, link: Link, resume: Sequence[str] = ()
    ) -> None:
        """Name it; `keep` starts it.

        Args:
            name: unique.
            role: which blows may strike it.
            command: what is run.
            log: where its output is added.
            link: through which it talks to the server.
            resume: of a run: what is run after it was killed.
        """
        self.name = name
        self.role = role
        self.log = log
        self.link = link
        self.exits: list[int] = []
        """Exit codes with which it ended by itself, and was started again."""
        self.complaint = ""
        """What was wrong with its last end."""
        self._command = list(command)
        self._resume = list(resume)
        self._process: Process | None = None
        self._rest_s: float | None = None
        self._is_frozen = False
        self._is_wanted = True
        self._ended = anyio.Event()

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def is_up(self) -> bool:
        """Say whether it runs and may be struck."""
        return self.pid is not None and not self._is_frozen

    async def keep(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run it until it is told to stop, or its work is over. Cancelled, it is killed."""
        command = self._command
        try:
            while self._is_wanted:
                self._process = await self._start(command)
                task_status.started()
                task_status = anyio.TASK_STATUS_IGNORED
                await self._see_it_end(await self._process.wait())
                command = self._resume or command
        finally:
            if self._process is not None:
                self._signal(signal.SIGKILL)
                with anyio.CancelScope(shield=True):
                    await self._process.wait()
            self._ended.set()

    def kill(self, rest_s: float) -> None:
        """End it at once; it is started again after a rest."""
        self._rest_s = rest_s
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is."""
        self._is_frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._is_frozen = False
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Ask it to end, and wait; kill it if it does not."""
        self._is_wanted = False
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(_STOP_S) as waiting:
            await self._ended.wait()
        if waiting.cancelled_caught:
            self._signal(signal.SIGKILL)
            await self._ended.wait()
            self.complaint = f"{self.name} did not end within {_STOP_S:g} s when it was asked to: see {self.log}"

    async def wait(self) -> None:
        """Wait until it has ended and is not started again."""
        await self._ended.wait()

    async def _see_it_end(self, code: int) -> None:
        if self._rest_s is not None:
            await anyio.sleep(self._rest_s)
            self._rest_s = None
        elif self._is_wanted and (not self._resume or code == INFRASTRUCTURE):
            self.exits.append(code)
            await anyio.sleep(_AGAIN_S)
        else:
            self._is_wanted = False
            if code != 0:
                self.complaint = f"{self.name} ended with exit code {code}: see {self.log}"

    async def _start(self, command: list[str]) -> Process:
        with self.log.open("ab") as log:
            return await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)


def marked(value: str) -> list[str]:
    """Name all processes of a play that are there, by id and command."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARKER) == value:
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
        except psutil.Error:
            continue
    return found


async def gone(value: str, *, within_s: float) -> list[str]:
    """Wait until no process of a play is left; name those that still are when the time is over."""
    with anyio.move_on_after(within_s):
        while await anyio.to_thread.run_sync(marked, value):  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.2)
    return await anyio.to_thread.run_sync(marked, value)
