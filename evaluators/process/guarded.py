"""Starts `evaluators/process/guard.py` from a coroutine: the only way to run a compiler or a judge here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from messages.base import EvaluatorError

GUARD = Path(__file__).with_name("guard.py")
_STOP_S = 10.0


class GuardJob(msgspec.Struct, frozen=True, kw_only=True):
    """A command and its limits; fields as in `evaluators.process.guard.DEFAULTS`."""

    command: tuple[str, ...]
    wall_s: float = 0.0
    cpu_s: int = 0
    memory_bytes: int = 0
    file_bytes: int = 0
    idle: bool = False
    log_path: str = ""
    log_bytes: int = 1 << 20
    pass_fds: tuple[int, ...] = ()
    scratch: str = ""
    isolation: str = ""
    reads: tuple[str, ...] = ()
    watched: bool = False


class GuardReport(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a guarded command."""

    how: str
    """`ended`, `timed_out` or, of a judge that made no progress, `stalled`."""
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    """Of the command and all its descendants."""
    wanted_core: bool
    """True if something of it was not asleep when it was stopped at its limit."""
    max_rss_bytes: int
    log_cut: bool
    undying: tuple[str, ...] = ()
    """Processes that were killed and are still there."""


REPORT = msgspec.json.Decoder(GuardReport)


class Guard(Protocol):
    """The guard of a running command: a process of its own, or forked from a warm one."""

    async def report(self) -> GuardReport | None:
        """Wait for the command's end and return how it was; None if the guard itself died."""

    async def stop(self) -> None:
        """Have the guard kill all that is left, and wait until it has. Not cancelled, but bounded."""


class OwnGuard:
    """A guard that is a process of its own, as `start_guarded` returns it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def report(self) -> GuardReport | None:
        """See `Guard`."""
        if self._process.stdout is None:
            return None
        try:
            line = await BufferedByteReceiveStream(self._process.stdout).receive_until(b"\n", 1 << 16)
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return None
        return REPORT.decode(line)

    async def stop(self) -> None:
        """See `Guard`."""
        await stop_guarded(self._process)


async def run_guarded(job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport:
    """Run a command to its end or its limit. Cancelled: the command and all its descendants are killed first.

    Raises:
        EvaluatorError: the guard could not be started, or said nothing.
    """
    report = await report_of(OwnGuard(await start_guarded(job, cwd=cwd, environment=environment)))
    if report is None:
        raise EvaluatorError(f"the guard of {job.command[0]!r} died")
    return report


async def report_of(guard: Guard) -> GuardReport | None:
    """Wait for a command's end and stop its guard; None if the guard itself died."""
    try:
        return await guard.report()
    finally:
        await guard.stop()


async def start_guarded(
    job: GuardJob, *, cwd: Path, environment: dict[str, str], pass_fds: Sequence[int] = ()
) -> Process:
    """Start a guard. The caller owes it `stop_guarded`.

    Must be called on the event loop's thread: guard and command end with the thread that started them.

    Raises:
        EvaluatorError: it could not be started.
    """
    arguments = [sys.executable, "-I", "-S", str(GUARD), msgspec.json.encode(job).decode()]
    try:
        return await anyio.open_process(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env=environment,
            pass_fds=pass_fds,
        )
    except OSError as error:
        raise EvaluatorError(f"cannot start a process: {error}") from error


async def stop_guarded(process: Process) -> None:
    """Have the guard kill all that is left, and wait until it has. Not cancelled by the caller's scope, but bounded."""
    with anyio.CancelScope(shield=True):
        if process.stdin is not None:
            await process.stdin.aclose()
        with anyio.move_on_after(_STOP_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


def plain_environment(**more: str) -> dict[str, str]:
    """Return a small environment: where programs are, and C locale. Nothing else of the user's, no secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **more}
