"""A run and its workers as real processes, each signed in with its role's credentials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from anyio.abc import TaskGroup

from tests.chaos.fleet import Worker
from tests.chaos.links import Link
from tests.chaos.stage import KSEARCH, TASK


class Fleet(msgspec.Struct, frozen=True):
    """Who takes part in runs on the servers at `url`."""

    url: str
    credentials: Path
    folder: Path
    """Takes logs, artifacts and runs."""

    async def start_workers(self, tasks: TaskGroup, *, evaluation_s: float, coder: tuple[str, ...]) -> list[Worker]:
        """Start an evaluator, a builder, and a coder with these options."""
        store = ("--artifacts", str(self.folder / "artifacts"))
        commands = {
            "evaluator": ("--device", f"simulated:{evaluation_s:g}", *store),
            "builder": ("--device", "simulated", *store),
            "coder": coder,
        }
        workers = []
        for role, options in commands.items():
            command = (*KSEARCH, role, "--nats", self.url, "--credentials", str(self.credentials / role), *options)
            workers.append(await self.start(tasks, role, role, command))
        return workers

    async def start_run(
        self, tasks: TaskGroup, run_id: str, *, rounds: int, branches: int, more: Sequence[str] = ()
    ) -> Worker:
        """Start a run, which its process leads and records."""
        command = [*KSEARCH, "run", TASK, "--nats", self.url, "--arch", "simulated", "--run-name", run_id]
        command += ["--runs-dir", str(self.folder / "runs"), "--max-rounds", str(rounds), "--branches", str(branches)]
        signed_in = ["env", f"KSEARCH_NATS_CREDENTIALS={self.credentials / 'planner'}", *command, *more]
        return await self.start(tasks, "run", "planner", signed_in, resume=["false"])

    async def start(
        self, tasks: TaskGroup, name: str, role: str, command: Sequence[str], resume: Sequence[str] = ()
    ) -> Worker:
        """Start a command, and start it again when it ends."""
        worker = Worker(name, role, command, log=self.folder / f"{name}.log", link=Link(0), resume=resume)
        await tasks.start(worker.keep)
        return worker
